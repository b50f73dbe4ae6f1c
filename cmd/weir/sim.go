package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/sim"
)

func (a *app) upstreamSim() *cobra.Command {
	var listen, behaviour string
	var asJSON bool
	c := &cobra.Command{Use: "upstream-sim", Short: "Run the simulated OpenAI and Anthropic upstream", Args: exactly(),
		Long: "Run a server that answers like OpenAI and Anthropic. A request asks for its behaviour in the model name\n" +
			"(gpt-4o-mini+latency=1s,out=120) or in an x-sim header (latency=1s; out=120), which the gateway passes on to upstreams\n" +
			"on this machine. `go doc ./core/sim` lists all options.",
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := sim.ParseBehaviour(sim.Behaviour{}, behaviour)
			if err != nil {
				return usageError("--default: %v", err)
			}
			ln, err := listenOn("--listen", listen)
			if err != nil {
				return err
			}
			s := a.startSim(sim.Options{Default: b}, ln)
			if err := a.printListening(ln, asJSON); err != nil {
				return errors.Join(err, s.stop())
			}
			return s.wait(c.Context())
		}}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:3009", "address")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&behaviour, "default", "", "behaviour of every request that asks for none, such as latency=50ms")
	return c
}

func (a *app) printListening(ln net.Listener, asJSON bool) error {
	url := "http://" + ln.Addr().String()
	if asJSON {
		return a.printJSON(map[string]string{"upstream_url": url})
	}
	_, err := fmt.Fprintln(a.out, "simulated upstream on "+url)
	return err
}

// listenOn listens on the address that a flag gives.
func listenOn(flag, address string) (net.Listener, error) {
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return nil, usageError("%s: expected host:port, such as 127.0.0.1:3009, got %q", flag, address)
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		err = fmt.Errorf("%s: %w (choose another address, such as %s 127.0.0.1:0)", flag, err, flag)
	}
	return ln, err
}

// runningSim is a simulation with its serving goroutine.
type runningSim struct {
	*sim.Sim
	ended chan error
}

func (a *app) startSim(o sim.Options, ln net.Listener) *runningSim {
	s := &runningSim{sim.New(o, a.clock), make(chan error, 1)}
	go func() { s.ended <- s.Serve(ln) }()
	return s
}

// wait serves until ctx ends, then stops.
func (s *runningSim) wait(ctx context.Context) error {
	select {
	case err := <-s.ended:
		return err
	case <-ctx.Done():
		return s.stop()
	}
}

func (s *runningSim) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.Shutdown(ctx)
	<-s.ended
	return err
}
