// Package abi holds the constants and layout of the policy ABI v1: what a policy module exports, the request
// (facts) the host writes into the module's memory, and the response (decision) it reads back. It is the source:
// every guest SDK carries the same numbers and a test compares them.
//
// All integers are little endian. Offsets are bytes from the start of the buffer, sizes are bytes. The host owns
// both buffers during a call, the guest at all other times. Before each call the host writes the whole request up to
// ReqStrings and zeroes the response up to RespDims: a guest writes RespMajor and what it wants to change. Entries
// of dimensions and the arena hold what the guest left there. Minor versions add only in reserved space.
package abi

// The version of the ABI this host speaks. A module is loaded when its major is equal and its minor not newer.
const (
	Major   = 1
	Minor   = 0
	Version = Major<<16 | Minor // what weir_abi_version returns
)

// What a module exports. ExportMemory, ExportVersion, ExportRequest, ExportResponse and ExportDecide are required.
const (
	ExportMemory       = "memory"
	ExportInitialize   = "_initialize"        // ()->(): once per instance, first
	ExportVersion      = "weir_abi_version"   // ()->i32: Version
	ExportRequest      = "weir_request"       // ()->i32: address of RequestSize bytes
	ExportResponse     = "weir_response"      // ()->i32: address of ResponseSize bytes
	ExportAttributes   = "weir_attributes"    // ()->i64: bit i set: attribute i is wanted; absent: all are
	ExportParamsBuffer = "weir_params_buffer" // (len i32)->i32: address for the configuration; 0: too big
	ExportConfigure    = "weir_configure"     // (len i32)->i32: 0: accepted; else the load is refused with that code
	ExportDecide       = "weir_decide"        // ()->i32: Decided, Abstained, or a guest error above
	ExportFuel         = "__weir_fuel"        // the global the host injects; a module may not name it
)

// The only import a plain module may have, and the module standard-Go guests import their stubs from.
const (
	ImportModule = "weir"
	ImportLog    = "log" // (level i32, ptr i32, len i32)->()
	ImportWASI   = "wasi_snapshot_preview1"
)

// Levels of weir.log.
const (
	LogDebug = 0
	LogInfo  = 1
	LogWarn  = 2
	LogError = 3
)

// Custom sections.
const (
	SectionSchema = "weir.schema" // JSON Schema of the params
	SectionCases  = "weir.cases"  // JSON: facts and expected decisions, run at every load
	SectionAbout  = "weir.about"  // JSON: {"name":…,"version":…,"author":…}
)

// What weir_decide returns; anything above Abstained is a guest error.
const (
	Decided   = 0
	Abstained = 1 // native defaults
)

// Sizes of the buffers.
const (
	RequestSize  = 4096
	ResponseSize = 2048
	BufferAlign  = 16
	ParamsMax    = 64 << 10 // bytes of configuration JSON
)

// The request (facts). Limits of 0 mean unlimited; values beyond a field's range are saturated.
const (
	ReqSize               = 0   // u32: valid bytes, strings included
	ReqHostMinor          = 4   // u16: Minor of the host
	ReqNAttr              = 6   // u16: NAttr
	ReqNowMS              = 8   // u64: wall clock, unix milliseconds
	ReqEntropy            = 16  // u64: from the request id
	ReqFlags              = 24  // u32: Flag…
	ReqEndpoint           = 28  // u32: Endpoint…
	ReqInputTokens        = 32  // u32: estimate
	ReqOutputTokensMax    = 36  // u32: upper bound over all choices
	ReqChoices            = 40  // u32
	ReqBodyBytes          = 44  // u32
	ReqKeyID              = 48  // u64
	ReqUserID             = 56  // u64
	ReqOrgID              = 64  // u64
	ReqQPSLimit           = 72  // u32: of the key, as the next five
	ReqQPSCurrent         = 76  // u32
	ReqTPMLimit           = 80  // u32
	ReqTPMCurrent         = 84  // u32
	ReqConcurrencyLimit   = 88  // u32
	ReqConcurrencyCurrent = 92  // u32
	ReqQuotaLimit         = 96  // i64: micro-units of the currency, as the next three
	ReqQuotaUsed          = 104 // i64: posted + held
	ReqBalanceAvailable   = 112 // i64
	ReqEstimatedCost      = 120 // i64
	ReqMinuteOfWeek       = 128 // u32: in the key's zone, Monday 00:00 = 0
	ReqDayOfMonth         = 132 // u16: 1..31
	ReqDaysInMonth        = 134 // u16: 28..31
	ReqTier               = 136 // u32: index of the key's tier
	ReqGeneration         = 140 // u32: params generation, grows with each activation
	ReqReserved           = 144 // 16 bytes of 0
	ReqAttrs              = 160 // {u32 off, u32 len} x NAttr; off from the buffer's start; len 0: absent
	ReqStrings            = 288 // bytes: UTF-8, whole or empty, never cut
)

// The attributes.
const (
	AttrModel    = 0
	AttrKeyName  = 1
	AttrUserName = 2
	AttrOrgName  = 3
	AttrEndUser  = 4 // body "user"
	AttrClientIP = 5
	AttrTier     = 6 // name of the key's tier
	AttrProvider = 7
	AttrLabel0   = 8 // 8..15: labels mapped in config
	NAttr        = 16
	AttrSize     = 8 // bytes of one entry of the table
)

// Bits of ReqFlags.
const (
	FlagStream = 1 << 0
	FlagTools  = 1 << 1
	FlagImages = 1 << 2
	FlagFiles  = 1 << 3  // audio or files
	FlagRetry  = 1 << 4  // the client says this is a retry
	FlagCut    = 1 << 31 // an attribute did not fit and was sent empty
)

// Values of ReqEndpoint.
const (
	EndpointChat        = 1
	EndpointCompletions = 2
	EndpointEmbeddings  = 3
	EndpointResponses   = 4
	EndpointMessages    = 5
	EndpointCountTokens = 6 // of Anthropic's dialect; nothing is generated
)

// The response (decision). Every multiplier is in 1/1000 and 0 stands for 1000. Reserved bytes are ignored.
const (
	RespMajor           = 0  // u16: Major
	RespNDims           = 2  // u16: 0..MaxDims; 0: the configured default
	RespVerdict         = 4  // u8: Verdict…
	RespFlags           = 5  // u8: RespNoBill | RespNoLimit
	RespTier            = 6  // u16: tier index + 1; 0: keep
	RespQPSMultiplier   = 8  // u32: of the key dimension, as the next three
	RespTPMMultiplier   = 12 // u32
	RespQuotaMultiplier = 16 // u32
	RespBurst           = 20 // u32
	RespOverdraft       = 24 // i64: micro-units, not negative
	RespOutputCap       = 32 // u32: tokens; 0: none
	RespPriceMultiplier = 36 // u32
	RespStatus          = 40 // u16: HTTP status of a denial, 400..499; 0: 403
	RespReason          = 42 // u16: shown in reports
	RespRetryAfterMS    = 44 // u32: of a denial
	RespMessageOff      = 48 // u32: from the buffer's start, inside the arena
	RespMessageLen      = 52 // u32: 0: none; at most MessageMax
	RespArenaUsed       = 56 // u32: 0..ArenaSize
	RespReserved        = 60 // 4 bytes
	RespDims            = 64 // DimSize x MaxDims, in the order of checking
	RespArena           = 576
	ArenaSize           = ResponseSize - RespArena // 1472
	MessageMax          = 512                      // bytes, UTF-8
)

// Values of RespVerdict.
const (
	VerdictAllow      = 0
	VerdictDeny       = 1
	VerdictShadowDeny = 2 // logged only
)

// Bits of RespFlags.
const (
	RespNoBill  = 1 << 0
	RespNoLimit = 1 << 1
)

// One dimension of a response; offsets from the start of its entry.
const (
	DimKind           = 0  // u8: Kind…
	DimFlags          = 1  // u8: Dim…
	DimTier           = 2  // u16: tier index + 1; 0: none
	DimQPSLimit       = 4  // u32: requests per second; 0: as configured for that dimension
	DimTPMLimit       = 8  // u32: tokens per minute; 0: as configured
	DimMultiplier     = 12 // u32: of both limits
	DimBurst          = 16 // u32
	DimValueOff       = 20 // u32: custom only: from the buffer's start, inside the arena
	DimValueLen       = 24 // u32: custom only: 1..ValueMax
	DimCostMultiplier = 28 // u32: of the TPM amount only
	DimSize           = 32
	MaxDims           = 16
	ValueMax          = 128 // bytes, UTF-8
)

// Values of DimKind. KindChannel and KindModelChannel are tested per attempt.
const (
	KindGlobal       = 0
	KindKey          = 1
	KindModel        = 2
	KindUser         = 3
	KindOrg          = 4
	KindChannel      = 5
	KindIP           = 6
	KindEndUser      = 7
	KindKeyModel     = 8
	KindModelChannel = 9
	KindCustom       = 255
)

// Bits of DimFlags.
const (
	DimCountOnly  = 1 << 0 // counted, never refuses
	DimShadow     = 1 << 1 // the same, and a would-refuse is reported
	DimSkipAbsent = 1 << 2 // left out when the request has no such value
)

// MaxMultiplier is the largest multiplier, burst, price or cost a response may hold: 1,000 times.
const MaxMultiplier = 1_000_000
