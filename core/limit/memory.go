package limit

import (
	"context"

	"github.com/weir-gateway/weir/core/llm"
)

// Algorithm is how a window counts.
type Algorithm string

// The algorithms.
const (
	Sliding     Algorithm = "sliding"      // exact: never above the limit in any window
	Fixed       Algorithm = "fixed"        // whole-bucket reset
	TokenBucket Algorithm = "token_bucket" // capacity and refill
)

// Windows chooses the algorithms of one dimension kind; empty is Sliding.
type Windows struct {
	QPS Algorithm `yaml:"qps"`
	TPM Algorithm `yaml:"tpm"`
}

// Options configure Memory.
type Options struct {
	Algorithms map[Kind]Windows
}

// Memory is the Limiter of one process.
type Memory struct{}

// New makes a limiter; Close stops its sweeper.
func New(o Options, clock llm.Clock, journal Journal) *Memory { panic("skeleton") }

// Close stops the sweeper and waits for it.
func (m *Memory) Close() { panic("skeleton") }

// Open counts the reservations that are not settled; idle means 0.
func (m *Memory) Open() int { panic("skeleton") }

// LoadBalance sets a user's available money as the ledger knows it; called before traffic and on creation.
func (m *Memory) LoadBalance(user uint64, available llm.Micro) { panic("skeleton") }

// LoadQuota sets what a key has used in a period, as the ledger knows it.
func (m *Memory) LoadQuota(key uint64, label int32, used llm.Micro) { panic("skeleton") }

// Credit moves a user's available money: after the ledger's acknowledgement for a rise, before it for a cut.
func (m *Memory) Credit(user uint64, delta llm.Micro) { panic("skeleton") }

// Balance is a user's available and held money.
func (m *Memory) Balance(user uint64) (available, held llm.Micro) { panic("skeleton") }

// Quota is what a key has used and holds in a period.
func (m *Memory) Quota(key uint64, label int32) (used, held llm.Micro) { panic("skeleton") }

// Reserve implements Limiter.
func (m *Memory) Reserve(ctx context.Context, c *Claim) (Reservation, *Denial, error) {
	panic("skeleton")
}

// Peek implements Limiter.
func (m *Memory) Peek(ctx context.Context, c *Claim) (*Denial, error) { panic("skeleton") }

// Storm implements Limiter.
func (m *Memory) Storm(id ID, limit int64) *Denial { panic("skeleton") }

// Inspect implements Limiter.
func (m *Memory) Inspect(ctx context.Context, id ID) (Use, error) { panic("skeleton") }
