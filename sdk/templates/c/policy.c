// The keys with the same label "team" share one limit, and at night each key may ask faster.
#include "weir/weir.h"

static int32_t team = -1;
static uint32_t team_qps, night_permille;

// Once per instance: what depends on the configuration. Anything but 0 refuses the activation.
int32_t weir_configure(int32_t len) {
  const weir_config config = weir_config_read(len);
  team = weir_label(config, WEIR_TEXT("team"));
  team_qps = (uint32_t)weir_integer(weir_get(config.params, "team_qps"), 10);
  night_permille = (uint32_t)weir_integer(weir_get(config.params, "night_permille"), 2000);
  return 0;
}

// Once per request: which limits apply. The gateway then decides whether they are met.
int32_t weir_decide(void) {
  const weir_text name = weir_attr(team);
  if (name.len == 0) return WEIR_ABSTAINED;
  weir_reset();
  weir_pick(WEIR_KIND_KEY);
  weir_pick(WEIR_KIND_MODEL);
  weir_pick(WEIR_KIND_GLOBAL);
  weir_dimension *shared = weir_pick(WEIR_KIND_CUSTOM);
  weir_value(weir_value(shared, WEIR_TEXT("team:")), name);
  shared->qps_limit = team_qps;
  const uint32_t minute = facts->minute_of_week % 1440;
  if (minute < 6 * 60 || minute >= 22 * 60) decision->qps_multiplier = night_permille;
  return weir_done();
}
