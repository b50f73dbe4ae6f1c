// Weir's policy SDK for C: one header for a policy of one file.
//
// The gateway writes the facts of a request into `facts`, calls weir_decide, and reads `decision`. Both lie in this
// module's memory exactly as the ABI says (abi.h), so nothing is copied, parsed or allocated during a call. A policy
// defines two functions:
//
//     int32_t weir_configure(int32_t len);   once per instance; 0: accepted, else the activation is refused
//     int32_t weir_decide(void);             once per request: weir_done(), or WEIR_ABSTAINED for the native defaults
//
// Optional: int64_t weir_attributes(void), where bit i asks for attribute i; others are then not written.
#ifndef WEIR_H
#define WEIR_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#define WEIR_EXPORT(name) __attribute__((export_name(#name))) name
#define WEIR_UNUSED __attribute__((unused))

int32_t WEIR_EXPORT(weir_configure)(int32_t len);
int32_t WEIR_EXPORT(weir_decide)(void);
int64_t WEIR_EXPORT(weir_attributes)(void);

// What weir_done returns when more was asked for than the ABI has room for.
#define WEIR_GUEST_ERROR 2

// ---- texts ----

// Some bytes of UTF-8, not ended by 0. One from the facts is valid during the call.
typedef struct {
  const char *ptr;
  uint32_t len; // 0: absent
} weir_text;

// A literal as a text: weir_equals(weir_attr(WEIR_ATTR_MODEL), WEIR_TEXT("gpt-4o")).
#define WEIR_TEXT(literal) ((weir_text){"" literal, sizeof(literal) - 1})

static inline bool weir_starts_with(weir_text t, weir_text prefix) {
  if (prefix.len > t.len) return false;
  for (uint32_t i = 0; i < prefix.len; i++) {
    if (t.ptr[i] != prefix.ptr[i]) return false;
  }
  return true;
}

static inline bool weir_equals(weir_text a, weir_text b) { return a.len == b.len && weir_starts_with(a, b); }

static inline bool weir_ends_with(weir_text t, weir_text suffix) {
  return suffix.len <= t.len && weir_equals((weir_text){t.ptr + (t.len - suffix.len), suffix.len}, suffix);
}

// For labels that are switches: there, and neither "false", "no", "off" nor "0".
static inline bool weir_on(weir_text t) {
  return t.len > 0 && !weir_equals(t, WEIR_TEXT("false")) && !weir_equals(t, WEIR_TEXT("no")) &&
         !weir_equals(t, WEIR_TEXT("off")) && !weir_equals(t, WEIR_TEXT("0"));
}

// ---- facts ----

// What is known about the request, as the host wrote it. A limit of 0 means unlimited.
typedef struct {
  uint32_t size;
  uint16_t host_minor, n_attr;
  uint64_t now_ms;            // unix time
  uint64_t entropy;           // from the request id: the same on a replay
  uint32_t flags;             // WEIR_FLAG_...
  uint32_t endpoint;          // WEIR_ENDPOINT_...
  uint32_t input_tokens;      // estimate
  uint32_t output_tokens_max; // upper bound over all choices
  uint32_t choices;
  uint32_t body_bytes;
  uint64_t key_id, user_id, org_id;
  uint32_t qps_limit, qps_current; // of the key, as the next four
  uint32_t tpm_limit, tpm_current;
  uint32_t concurrency_limit, concurrency_current;
  int64_t quota_limit, quota_used; // micro-units of the currency, as the next two; used is posted and held
  int64_t balance_available, estimated_cost;
  uint32_t minute_of_week; // in the key's zone, Monday 00:00 is 0
  uint16_t day_of_month, days_in_month;
  uint32_t tier;       // index of the key's tier
  uint32_t generation; // of the params
  uint8_t reserved[16];
  struct {
    uint32_t off, len;
  } attrs[WEIR_N_ATTR];
  char strings[WEIR_REQUEST_SIZE - WEIR_REQ_STRINGS];
} weir_facts;

// ---- decision ----

// One limit to test, as the policy wants it. Every multiplier is in 1/1000; 0 stands for 1000.
typedef struct {
  uint8_t kind, flags;
  uint16_t tier_plus_1;
  uint32_t qps_limit;  // requests per second; 0: as configured for this dimension
  uint32_t tpm_limit;  // tokens per minute; 0: as configured
  uint32_t multiplier; // of both limits
  uint32_t burst;
  uint32_t value_off, value_len;
  uint32_t cost_multiplier; // of the tokens that this dimension counts
} weir_dimension;

// What the module answers. Call weir_reset first; every multiplier is in 1/1000, and 0 stands for 1000.
typedef struct {
  uint16_t major, n_dims;
  uint8_t verdict, flags;
  uint16_t tier_plus_1;
  uint32_t qps_multiplier, tpm_multiplier, quota_multiplier, burst; // of the key dimension
  int64_t overdraft;          // micro-units: how far below zero the balance may go
  uint32_t output_tokens_cap; // 0: none
  uint32_t price_multiplier;
  uint16_t status;
  uint16_t reason; // shown in reports
  uint32_t retry_after_ms;
  uint32_t message_off, message_len;
  uint32_t arena_used;
  uint32_t failed; // in reserved space, which the host ignores
  weir_dimension dims[WEIR_MAX_DIMS];
  char arena[WEIR_ARENA_SIZE];
} weir_decision;

#define WEIR_LIES_AT(type, member, off) _Static_assert(offsetof(type, member) == (off), #member " does not match the ABI")
WEIR_LIES_AT(weir_facts, now_ms, WEIR_REQ_NOW_MS);
WEIR_LIES_AT(weir_facts, flags, WEIR_REQ_FLAGS);
WEIR_LIES_AT(weir_facts, key_id, WEIR_REQ_KEY_ID);
WEIR_LIES_AT(weir_facts, qps_limit, WEIR_REQ_QPS_LIMIT);
WEIR_LIES_AT(weir_facts, concurrency_current, WEIR_REQ_CONCURRENCY_CURRENT);
WEIR_LIES_AT(weir_facts, quota_limit, WEIR_REQ_QUOTA_LIMIT);
WEIR_LIES_AT(weir_facts, estimated_cost, WEIR_REQ_ESTIMATED_COST);
WEIR_LIES_AT(weir_facts, days_in_month, WEIR_REQ_DAYS_IN_MONTH);
WEIR_LIES_AT(weir_facts, generation, WEIR_REQ_GENERATION);
WEIR_LIES_AT(weir_facts, attrs, WEIR_REQ_ATTRS);
WEIR_LIES_AT(weir_facts, strings, WEIR_REQ_STRINGS);
WEIR_LIES_AT(weir_decision, qps_multiplier, WEIR_RESP_QPS_MULTIPLIER);
WEIR_LIES_AT(weir_decision, overdraft, WEIR_RESP_OVERDRAFT);
WEIR_LIES_AT(weir_decision, price_multiplier, WEIR_RESP_PRICE_MULTIPLIER);
WEIR_LIES_AT(weir_decision, reason, WEIR_RESP_REASON);
WEIR_LIES_AT(weir_decision, arena_used, WEIR_RESP_ARENA_USED);
WEIR_LIES_AT(weir_decision, dims, WEIR_RESP_DIMS);
WEIR_LIES_AT(weir_decision, arena, WEIR_RESP_ARENA);
WEIR_LIES_AT(weir_dimension, qps_limit, WEIR_DIM_QPS_LIMIT);
WEIR_LIES_AT(weir_dimension, value_off, WEIR_DIM_VALUE_OFF);
WEIR_LIES_AT(weir_dimension, cost_multiplier, WEIR_DIM_COST_MULTIPLIER);
_Static_assert(sizeof(weir_facts) == WEIR_REQUEST_SIZE && sizeof(weir_decision) == WEIR_RESPONSE_SIZE, "buffers do not match the ABI");

static alignas(WEIR_BUFFER_ALIGN) weir_facts weir_facts_buffer;
static alignas(WEIR_BUFFER_ALIGN) weir_decision weir_decision_buffer;

// The facts and the decision of the call that runs.
WEIR_UNUSED static const weir_facts *const facts = &weir_facts_buffer;
WEIR_UNUSED static weir_decision *const decision = &weir_decision_buffer;

int32_t WEIR_EXPORT(weir_abi_version)(void) { return WEIR_VERSION; }
void *WEIR_EXPORT(weir_request)(void) { return &weir_facts_buffer; }
void *WEIR_EXPORT(weir_response)(void) { return &weir_decision_buffer; }

// Reports whether one of the given flags is set.
static inline bool weir_has(uint32_t flags) { return (facts->flags & flags) != 0; }

// An attribute by its number: WEIR_ATTR_MODEL, ..., or what weir_label gave (negative: absent).
static inline weir_text weir_attr(int32_t i) {
  if (i < 0 || i >= (int32_t)WEIR_N_ATTR) return WEIR_TEXT("");
  return (weir_text){(const char *)facts + facts->attrs[i].off, facts->attrs[i].len};
}

// Clears the answer of the call before.
static inline void weir_reset(void) {
  uint64_t *words = (uint64_t *)(void *)decision;
  for (uint32_t i = 0; i < WEIR_RESP_DIMS / 8; i++) words[i] = 0;
  decision->major = WEIR_MAJOR;
}

// Picks a dimension (WEIR_KIND_...), after those picked before. Picking none keeps key, model, global.
static inline weir_dimension *weir_pick(uint32_t kind) {
  if (decision->n_dims == WEIR_MAX_DIMS) {
    decision->failed = 1;
    decision->n_dims--;
  }
  weir_dimension *d = &decision->dims[decision->n_dims++];
  *d = (weir_dimension){.kind = (uint8_t)kind};
  return d;
}

// Takes a dimension's limits from a tier (an index, as weir_tier gives; negative: no change).
static inline weir_dimension *weir_dim_tier(weir_dimension *d, int32_t index) {
  if (index >= 0) d->tier_plus_1 = (uint16_t)(index + 1);
  return d;
}

// Counts, and never refuses.
static inline weir_dimension *weir_count_only(weir_dimension *d) {
  d->flags |= WEIR_DIM_COUNT_ONLY;
  return d;
}

// Counts, never refuses, and reports what it would have refused.
static inline weir_dimension *weir_shadow(weir_dimension *d) {
  d->flags |= WEIR_DIM_SHADOW;
  return d;
}

// Is left out when the request has no such value.
static inline weir_dimension *weir_skip_if_absent(weir_dimension *d) {
  d->flags |= WEIR_DIM_SKIP_ABSENT;
  return d;
}

// Adds a text to the arena; gives its offset from the start of the decision, 0 when it does not fit.
static inline uint32_t weir_append(weir_text t) {
  if (t.len > WEIR_ARENA_SIZE - decision->arena_used) {
    decision->failed = 1;
    return 0;
  }
  char *to = decision->arena + decision->arena_used;
  for (uint32_t i = 0; i < t.len; i++) to[i] = t.ptr[i];
  const uint32_t off = WEIR_RESP_ARENA + decision->arena_used;
  decision->arena_used += t.len;
  return off;
}

// Adds a text to a custom dimension's value. Finish one dimension's value before you begin another's.
static inline weir_dimension *weir_value(weir_dimension *d, weir_text t) {
  const uint32_t off = weir_append(t);
  if (off == 0) return d;
  if (d->value_len == 0) d->value_off = off;
  d->value_len += t.len;
  return d;
}

// Puts the key into another tier (an index, as weir_tier gives; negative: no change).
static inline void weir_set_tier(int32_t index) {
  if (index >= 0) decision->tier_plus_1 = (uint16_t)(index + 1);
}

// Does not bill this request, where the operator's envelope allows.
static inline void weir_do_not_bill(void) { decision->flags |= WEIR_RESP_NO_BILL; }

// Does not limit this request, where the operator's envelope allows.
static inline void weir_do_not_limit(void) { decision->flags |= WEIR_RESP_NO_LIMIT; }

// Refuses with a status (400..499) and a text for the client; a wait of 0 ms means: do not try again. A decision has one
// message: of weir_deny and weir_explain the later one's counts.
static inline void weir_deny(uint16_t status, weir_text message, uint32_t retry_after_ms) {
  decision->verdict = WEIR_VERDICT_DENY;
  decision->status = status;
  decision->retry_after_ms = retry_after_ms;
  decision->message_off = weir_append(message);
  decision->message_len = decision->message_off ? message.len : 0;
}

// Says which rule fired, whatever the verdict: a number and a text for reports, the log and, where enabled, answers. After
// weir_deny its text takes the place of the one for the client.
static inline void weir_explain(uint16_t reason, weir_text message) {
  decision->reason = reason;
  decision->message_off = weir_append(message);
  decision->message_len = decision->message_off ? message.len : 0;
}

// Reports that it would refuse, and lets the request pass.
static inline void weir_shadow_deny(void) { decision->verdict = WEIR_VERDICT_SHADOW_DENY; }

// What weir_decide returns for this decision: a guest error when more was asked for than the ABI has room for.
static inline int32_t weir_done(void) { return decision->failed ? WEIR_GUEST_ERROR : (int32_t)WEIR_DECIDED; }

// ---- log ----

__attribute__((import_module("weir"), import_name("log"))) void weir_log_line(uint32_t level, const char *ptr, uint32_t len);

// Writes a line (at most 256 bytes; a longer one is left out) to the gateway's log, at WEIR_LOG_DEBUG .. WEIR_LOG_ERROR.
static inline void weir_log(uint32_t level, weir_text line) {
  if (line.len > 0 && line.len <= 256) weir_log_line(level, line.ptr, line.len);
}

#include "config.h"

#endif
