// One policy, written four times: the other three stand beside this one. Each part of the facts decides something.
#include "weir/weir.h"

typedef struct {
  weir_text prefix;
  uint32_t cost;
} model_cost;

static int32_t pro, enterprise, downgrade;       // tiers
static int32_t team_label, soft_label, region_label;
static uint32_t night_from, night_to, night_qps;
static int64_t soft_share;
static uint32_t soft_tpm, big_tokens, team_qps, sample_percent;
static bool strict;
static uint32_t n_blocked, n_models;
static weir_text *blocked;
static model_cost *models;

static uint32_t number(weir_json object, const char *member, int64_t fallback) { return (uint32_t)weir_integer(weir_get(object, member), fallback); }

static void configure_lists(weir_json p) {
  weir_list list = weir_elements(weir_get(p, "blocked"));
  weir_json e;
  n_blocked = n_models = 0;
  blocked = weir_alloc(weir_count(weir_get(p, "blocked")) * sizeof(weir_text));
  while (weir_each(&list, &e)) blocked[n_blocked++] = weir_string(e, WEIR_TEXT(""));
  list = weir_elements(weir_get(p, "models"));
  models = weir_alloc(weir_count(weir_get(p, "models")) * sizeof(model_cost));
  while (weir_each(&list, &e)) {
    models[n_models++] = (model_cost){weir_string(weir_get(e, "prefix"), WEIR_TEXT("")), number(e, "cost_permille", 1000)};
  }
}

int32_t weir_configure(int32_t len) {
  const weir_config config = weir_config_read(len);
  const weir_json p = config.params, night = weir_get(p, "night");
  pro = weir_tier(config, WEIR_TEXT("pro"));
  enterprise = weir_tier(config, WEIR_TEXT("enterprise"));
  downgrade = weir_tier(config, weir_string(weir_get(p, "downgrade"), WEIR_TEXT("free")));
  team_label = weir_label(config, WEIR_TEXT("team"));
  soft_label = weir_label(config, WEIR_TEXT("soft"));
  region_label = weir_label(config, WEIR_TEXT("region"));
  night_from = number(night, "from_hour", 22);
  night_to = number(night, "to_hour", 6);
  night_qps = number(night, "qps_permille", 2000);
  soft_share = weir_integer(weir_get(p, "soft_share_permille"), 900);
  soft_tpm = number(p, "soft_tpm_permille", 500);
  big_tokens = number(p, "big_tokens", 20000);
  team_qps = number(p, "team_qps", 10);
  sample_percent = number(p, "sample_percent", 0);
  strict = weir_bool(weir_get(p, "strict"), false);
  configure_lists(p);
  return 0;
}

static bool is_blocked(weir_text user) {
  for (uint32_t i = 0; i < n_blocked; i++) {
    if (weir_equals(user, blocked[i])) return true;
  }
  return false;
}

// Of the prefixes that match, the longest counts.
static uint32_t cost_of(weir_text model) {
  uint32_t cost = 0, longest = 0;
  for (uint32_t i = 0; i < n_models; i++) {
    if (models[i].prefix.len < longest || !weir_starts_with(model, models[i].prefix)) continue;
    longest = models[i].prefix.len;
    cost = models[i].cost;
  }
  return cost;
}

static int32_t deny(uint16_t status, weir_text message, uint32_t wait, uint16_t reason) {
  weir_deny(status, message, wait);
  decision->reason = reason;
  return weir_done();
}

static void by_month(bool soft) {
  const int64_t limit = facts->quota_limit, used = facts->quota_used, permille = limit / 1000;
  const int64_t share = limit > 0 ? used / (permille > 0 ? permille : 1) : -1;
  if (share >= soft_share) {
    if (soft) {
      decision->quota_multiplier = 1100;
      weir_set_tier(downgrade);
    } else {
      decision->tpm_multiplier = soft_tpm;
    }
    if (share >= 2 * soft_share) {
      weir_shadow_deny();
      decision->reason = 3;
    }
  }
  if (facts->day_of_month == facts->days_in_month && decision->quota_multiplier < 1050) decision->quota_multiplier = 1050;
}

static void by_time(void) {
  const uint32_t hour = facts->minute_of_week % 1440 / 60;
  const bool weekend = facts->minute_of_week / 1440 >= 5;
  const bool night = night_from <= night_to ? hour >= night_from && hour < night_to : hour >= night_from || hour < night_to;
  if (night) decision->qps_multiplier = night_qps;
  if ((night || weekend) && (int32_t)facts->tier == pro) decision->burst = 3000;
  if (facts->now_ms / 3600000 % 2 == 1 && decision->reason == 0) decision->reason = (uint16_t)(100 + hour);
}

static void by_money(bool soft) {
  if ((int32_t)facts->tier == enterprise && facts->balance_available < facts->estimated_cost) {
    decision->overdraft = facts->estimated_cost - facts->balance_available;
    decision->price_multiplier = 1200;
  }
  if (weir_has(WEIR_FLAG_RETRY)) decision->price_multiplier = 1100;
  if (weir_has(WEIR_FLAG_IMAGES | WEIR_FLAG_FILES) && (int32_t)facts->tier != enterprise) decision->output_tokens_cap = big_tokens / 2;
  if (soft && facts->key_id % 7 == 0) weir_do_not_bill();
  if (facts->concurrency_limit > 0 && facts->concurrency_current >= facts->concurrency_limit) weir_do_not_limit();
}

static void pick_dimensions(weir_text user, bool big) {
  weir_dimension *key = weir_pick(WEIR_KIND_KEY);
  if (big) {
    key->cost_multiplier = 1500;
    key->multiplier = 800;
  }
  weir_pick(WEIR_KIND_MODEL)->cost_multiplier = cost_of(weir_attr(WEIR_ATTR_MODEL));
  weir_pick(WEIR_KIND_GLOBAL);
  if (facts->tier == 0) {
    weir_pick(WEIR_KIND_USER);
  } else {
    weir_dimension *org = weir_count_only(weir_pick(WEIR_KIND_ORG));
    if (facts->entropy % 100 < sample_percent) weir_shadow(org);
  }
  weir_skip_if_absent(weir_pick(WEIR_KIND_IP));
  if (user.len > 0) weir_dim_tier(weir_pick(WEIR_KIND_END_USER), pro);
  weir_dimension *pair = weir_pick(WEIR_KIND_KEY_MODEL);
  if (weir_has(WEIR_FLAG_STREAM)) pair->qps_limit = 5;
  pair->tpm_limit = facts->tpm_limit / 2;
  if (facts->qps_limit > 0 && (uint64_t)facts->qps_current * 2 > facts->qps_limit) pair->burst = 1500;
  const weir_text team = weir_attr(team_label), region = weir_attr(region_label);
  if (team.len > 0) weir_value(weir_value(weir_pick(WEIR_KIND_CUSTOM), WEIR_TEXT("team:")), team)->qps_limit = team_qps;
  if (weir_ends_with(region, WEIR_TEXT("-eu"))) {
    weir_dimension *eu = weir_value(weir_count_only(weir_pick(WEIR_KIND_CUSTOM)), WEIR_TEXT("eu/"));
    weir_value(weir_value(weir_value(eu, region), WEIR_TEXT("/")), weir_attr(WEIR_ATTR_MODEL));
  }
  weir_pick(facts->endpoint == WEIR_ENDPOINT_MESSAGES ? WEIR_KIND_CHANNEL : WEIR_KIND_MODEL_CHANNEL);
}

int32_t weir_decide(void) {
  if (facts->endpoint == WEIR_ENDPOINT_EMBEDDINGS && (int32_t)facts->tier == enterprise) return WEIR_ABSTAINED;
  weir_reset();
  const weir_text user = weir_attr(WEIR_ATTR_END_USER);
  if (is_blocked(user)) return deny(403, WEIR_TEXT("this end user is blocked"), 0, 1);
  const uint64_t total = (uint64_t)facts->input_tokens + facts->output_tokens_max;
  if (strict && total > 4 * (uint64_t)big_tokens) return deny(429, WEIR_TEXT("too many tokens für eine Anfrage"), 60000, 2);
  const bool soft = weir_on(weir_attr(soft_label));
  by_month(soft);
  by_time();
  by_money(soft);
  pick_dimensions(user, total > big_tokens);
  return weir_done();
}
