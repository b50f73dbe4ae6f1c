// A module that uses every part of the SDK; the test tells it by the model attribute what to do.
#include "weir/weir.h"

static bool is(weir_json j, const char *member, weir_text want) { return weir_equals(weir_string(weir_get(j, member), WEIR_TEXT("")), want); }

int32_t weir_configure(int32_t len) {
  const weir_config config = weir_config_read(len);
  const weir_json p = config.params;
  if (weir_is_absent(p)) return 0;
  if (!is(p, "text", WEIR_TEXT("a\"b\\c/\b\f\n\r\té😀\001"))) return 1;
  if (weir_integer(weir_get(p, "number"), 0) != -1234567890123) return 2;
  if (weir_integer(weir_get(p, "fraction"), 7) != 7 || weir_integer(weir_get(p, "big"), 8) != 8 || weir_integer(weir_get(p, "text"), 9) != 9) return 3;
  if (!weir_bool(weir_get(p, "yes"), false) || weir_bool(weir_get(p, "no"), true) || !weir_bool(weir_get(p, "none"), true)) return 4;
  if (!weir_is_absent(weir_get(p, "none")) || !weir_is_absent(weir_get(p, "missing")) || weir_is_absent(weir_get(p, "no"))) return 5;
  if (weir_count(weir_get(p, "list")) != 3) return 6;
  weir_list list = weir_elements(weir_get(p, "list")), deep;
  weir_json e, d;
  if (!weir_each(&list, &e) || weir_integer(e, 0) != 1 || !weir_each(&list, &e)) return 6;
  deep = weir_elements(weir_get(e, "deep"));
  if (!weir_each(&deep, &d) || !weir_each(&deep, &d) || !weir_equals(weir_string(d, WEIR_TEXT("")), WEIR_TEXT("}]")) || weir_each(&deep, &d)) return 6;
  if (!weir_each(&list, &e) || weir_count(e) != 0 || weir_each(&list, &e)) return 7;
  if (!weir_equals(weir_string(weir_get(weir_get(p, "empty"), "x"), WEIR_TEXT("fallback")), WEIR_TEXT("fallback"))) return 7;
  if (weir_tier(config, WEIR_TEXT("b")) != 1 || weir_tier(config, WEIR_TEXT("c")) != -1) return 8;
  if (weir_label(config, WEIR_TEXT("y")) != 9 || weir_label(config, WEIR_TEXT("z")) != -1) return 8;
  return 0;
}

int64_t weir_attributes(void) { return 1 << WEIR_ATTR_MODEL | 1 << WEIR_ATTR_KEY_NAME | 1 << WEIR_ATTR_END_USER; }

// Each bit of the answer is one comparison of the end user's text.
static int32_t match(void) {
  const weir_text a = weir_attr(WEIR_ATTR_END_USER);
  int32_t bits = 1 << 8;
  if (weir_equals(a, WEIR_TEXT("grüße 😀 x"))) bits |= 1;
  if (weir_starts_with(a, WEIR_TEXT("grüß"))) bits |= 2;
  if (weir_starts_with(a, WEIR_TEXT("grüss"))) bits |= 4;
  if (weir_ends_with(a, WEIR_TEXT("😀 x"))) bits |= 8;
  if (weir_ends_with(a, WEIR_TEXT(""))) bits |= 16;
  if (weir_equals(a, WEIR_TEXT("grüße 😀 xx"))) bits |= 32;
  if (weir_on(a)) bits |= 64;
  if (a.len == 0) bits |= 128;
  return bits;
}

static int32_t numbers(void) {
  const weir_facts *f = facts;
  if (f->now_ms != 1700000000000 || f->entropy != 0xfedcba9876543210) return 2;
  if (!weir_has(WEIR_FLAG_STREAM) || weir_has(WEIR_FLAG_IMAGES) || f->endpoint != 5 || f->input_tokens != 11 || f->output_tokens_max != 12) return 3;
  if (f->choices != 13 || f->body_bytes != 14 || f->key_id != 15 || f->user_id != 16 || f->org_id != 17) return 4;
  if (f->qps_limit != 18 || f->qps_current != 19 || f->tpm_limit != 20 || f->tpm_current != 21) return 5;
  if (f->concurrency_limit != 22 || f->concurrency_current != 23 || f->quota_limit != 24 || f->quota_used != 25) return 6;
  if (f->balance_available != -26 || f->estimated_cost != 27 || f->minute_of_week != 28) return 7;
  if (f->day_of_month != 29 || f->days_in_month != 30 || f->tier != 31 || f->generation != 32) return 8;
  return 0;
}

static int32_t everything(void) {
  weir_set_tier(1);
  weir_set_tier(-1);
  weir_do_not_bill();
  weir_do_not_limit();
  decision->qps_multiplier = 1001;
  decision->tpm_multiplier = 1002;
  decision->quota_multiplier = 1003;
  decision->burst = 1004;
  decision->overdraft = 1ll << 40;
  decision->output_tokens_cap = 1005;
  decision->price_multiplier = 1006;
  weir_dimension *end = weir_shadow(weir_skip_if_absent(weir_pick(WEIR_KIND_END_USER)));
  end->qps_limit = 5;
  end->tpm_limit = 6;
  weir_dimension *team = weir_dim_tier(weir_count_only(weir_pick(WEIR_KIND_CUSTOM)), 0);
  weir_value(weir_value(weir_value(team, WEIR_TEXT("team:")), weir_attr(WEIR_ATTR_KEY_NAME)), WEIR_TEXT("/ü"));
  team->multiplier = 7;
  team->burst = 8;
  team->cost_multiplier = 9;
  weir_value(weir_pick(WEIR_KIND_CUSTOM), WEIR_TEXT("second"));
  return weir_done();
}

static int32_t arena(weir_text last) {
  weir_dimension *d = weir_pick(WEIR_KIND_CUSTOM);
  for (int i = 0; i < 147; i++) weir_value(d, WEIR_TEXT("0123456789"));
  weir_value(d, last);
  return weir_done();
}

int32_t weir_decide(void) {
  const weir_text model = weir_attr(WEIR_ATTR_MODEL);
  weir_reset();
  if (weir_equals(model, WEIR_TEXT("match"))) return match();
  if (weir_equals(model, WEIR_TEXT("facts"))) return numbers();
  if (weir_equals(model, WEIR_TEXT("everything"))) return everything();
  if (weir_equals(model, WEIR_TEXT("deny"))) {
    weir_deny(429, WEIR_TEXT("später 😀"), 1500);
    decision->reason = 7;
    return weir_done();
  }
  if (weir_equals(model, WEIR_TEXT("shadow"))) {
    weir_shadow_deny();
    return weir_done();
  }
  if (weir_equals(model, WEIR_TEXT("full")) || weir_equals(model, WEIR_TEXT("overfull"))) {
    for (int n = weir_equals(model, WEIR_TEXT("full")) ? 16 : 17; n > 0; n--) weir_pick(WEIR_KIND_KEY);
    return weir_done();
  }
  if (weir_equals(model, WEIR_TEXT("arena"))) return arena(WEIR_TEXT("é")); // the last two of 1472 bytes
  if (weir_equals(model, WEIR_TEXT("arena overfull"))) return arena(WEIR_TEXT("xé"));
  if (weir_equals(model, WEIR_TEXT("log"))) weir_log(WEIR_LOG_WARN, WEIR_TEXT("straße 😀"));
  return WEIR_ABSTAINED;
}
