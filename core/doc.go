// Package core is Weir, an LLM gateway whose limits are programmable. It holds no code; this page is the map.
//
// A fasthttp core proxies OpenAI- and Anthropic-shaped traffic and runs a native limiter on the hot path: sliding
// windows for requests and tokens, concurrency, a prepaid balance and quotas per key, all held by one object,
// the Reservation, which is settled exactly once. WebAssembly policy modules decide, per request, which limits apply;
// the native core decides whether they are met, so a bad module can never over-admit, lose money or stall the process.
//
// # The map
//
// Imports point down only, never sideways on a floor; arch_test.go holds the project to it.
//
//	roof     cmd/weir          commands, wiring, signals; no logic
//	         core/config       weir.yaml: one struct made of each package's Options; strict parse, defaults, validate
//	         core/sim          the simulated upstream
//	         core/load         the drivers of `weir attack` and `weir bench`
//	         core/doctor       the checks of `weir doctor`
//	         core/bench        `weir bench`: Weir beside a bare proxy and nginx; ratios, components, aims
//	floor 2  core/proxy        client listener: the walk, the stream relay, errors -> HTTP (only here)
//	         core/admin        operator API, health, metrics; its own listener
//	floor 1  core/auth         bearer key -> Caller
//	         core/policy       wazero host: check, meter, compile, pool, run under fuel -> Decision
//	         core/tokens       prompt and completion token counting; bounded time
//	         core/upstream     models -> channels, attempts, cool-downs, dialects, SSE framing, usage extraction
//	         core/limit        may it: windows, balance, quota. Claim -> Reservation. Memory only
//	         core/ledger       what happened: durable entries, group commit, replay, audit
//	         core/alert        a webhook when a share of a budget is spent
//	         core/cert         the certificate of a listener, read again when its files change
//	floor 0  core/llm          vocabulary: Tokens, Micro, Usage, Head, Error, Entry; no I/O
//	         sdk/abi           the policy ABI's constants
//	side     store             Open(url) -> a ledger.Store; core never imports it
//	         store/badger      the store in a local folder
//	         store/redis       the rate windows that several gateways share
//	         store/postgres    the store in a database of PostgreSQL's
//	         store/storetest   what every store must pass
//	         policies          the shipped modules, embedded; imports nothing of core
//	         policies/build    compiles them
//	         sdk               policy folders: templates and compilers in four languages, whose guest SDKs lie beside it
//	         sdk/gen           writes each guest SDK's constants from sdk/abi
//	         examples          stock SDKs, and a walkthrough, against a fresh gateway
//
// # One request
//
// core/proxy/serve.go is the walk, one short function; each line calls down, takes a value back and passes it on:
//
//  1. take one configuration snapshot: a reload cannot tear a request;
//  2. auth.Resolve: the key becomes a Caller;
//  3. the cheap look: a key in a retry storm is refused before its body is looked at;
//  4. llm.ScanHead: one strict pass over the body; what is checked is what is forwarded;
//  5. tokens.Estimate: input tokens, and the upper bound of the output;
//  6. the catalog: model, channels, price, the most it can cost;
//  7. policy.Decide: which dimensions, multipliers, tier; then the native envelope;
//  8. limit.Reserve: a Reservation or a Denial; the next line defers its Release;
//  9. upstream.Do: attempts, only before the first byte; each channel's meters by Extend;
//  10. buffered: Commit, wait for the ledger, write. Streamed: the relay takes the hold by Move, and withholds the terminal
//     event until the settlement is acknowledged;
//  11. one record: access log, metrics and the usage record derive from it.
//
// # Who owns the hold, and what if the process dies there
//
// Steps 1-7 hold nothing. From Reserve to the end of the walk the walk's own frame owns the Reservation: its deferred
// Release charges what the progress says is owed. From Move on the relay owns it: its Close does the same. The limiter's
// open table owns what both lost. When the process dies, memory goes and the ledger remains: at the next start every
// reserve entry without a resolution is charged its input and the last progress, flagged as estimated, before the
// gateway is ready.
//
// # Vocabulary
//
// One word, one meaning, in code, config, metrics and docs:
//
//	key          a virtual API key
//	user, org    a user owns keys and has the balance; an org owns users and is the tenant
//	caller       who asks: key, user and org together
//	model        the name the client asks for
//	channel      a provider, a base URL and a credential; provider is openai or anthropic by dialect
//	attempt      one try of one channel
//	dimension    key, model, global, user, org, ip, end_user, key+model, channel, or one that a policy names
//	meter        one counter of one dimension; window: the span a meter counts over
//	balance      prepaid money of a user; quota, budget: what a key may spend in a month, a week or a day
//	claim        what a request asks for -> reservation -> commit | release; denial: the limiter's no
//	policy       module, version, params, facts, decision, envelope
//	tier         a named set of limits
//	service tier how fast and at what factor of the price the provider serves; hosted tool: one that the provider runs
//	relay        what carries a stream to the client
//
// Units come last in names (timeout_ms). Token names follow OpenTelemetry's GenAI conventions.
package core
