// One policy, written four times: the other three stand beside this one. Each part of the facts decides something.
package main

import (
	"slices"
	"strings"

	"policy/weir"
)

func main() {}

func init() { weir.Serve(configure, decide) }

type modelCost struct {
	prefix string
	cost   uint32
}

var (
	pro, enterprise, downgrade                 int // tiers
	teamLabel, softLabel, regionLabel          int
	nightFrom, nightTo, nightQPS               uint32
	softShare                                  int64
	softTPM, bigTokens, teamQPS, samplePercent uint32
	strict                                     bool
	blocked                                    []string
	models                                     []modelCost
)

func number(object weir.JSON, member string, fallback int64) uint32 {
	return uint32(object.Get(member).Integer(fallback))
}

func configure(config weir.Config) int32 {
	p := config.Params
	night := p.Get("night")
	pro, enterprise = config.Tier("pro"), config.Tier("enterprise")
	downgrade = config.Tier(p.Get("downgrade").String("free"))
	teamLabel, softLabel, regionLabel = config.Label("team"), config.Label("soft"), config.Label("region")
	nightFrom, nightTo = number(night, "from_hour", 22), number(night, "to_hour", 6)
	nightQPS = number(night, "qps_permille", 2000)
	softShare = p.Get("soft_share_permille").Integer(900)
	softTPM = number(p, "soft_tpm_permille", 500)
	bigTokens = number(p, "big_tokens", 20000)
	teamQPS = number(p, "team_qps", 10)
	samplePercent = number(p, "sample_percent", 0)
	strict = p.Get("strict").Bool(false)
	for _, e := range p.Get("blocked").Elements() {
		blocked = append(blocked, e.String(""))
	}
	for _, e := range p.Get("models").Elements() {
		models = append(models, modelCost{e.Get("prefix").String(""), number(e, "cost_permille", 1000)})
	}
	return 0
}

func decide(f *weir.Facts, d *weir.Decision) int32 {
	if f.Endpoint == weir.EndpointEmbeddings && int(f.Tier) == enterprise {
		return weir.Abstained
	}
	user := f.Attr(weir.AttrEndUser)
	if slices.Contains(blocked, user) {
		return deny(d, 403, "this end user is blocked", 0, 1)
	}
	total := uint64(f.InputTokens) + uint64(f.OutputTokensMax)
	if strict && total > 4*uint64(bigTokens) {
		return deny(d, 429, "too many tokens für eine Anfrage", 60000, 2)
	}
	soft := weir.On(f.Attr(softLabel))
	byMonth(f, d, soft)
	byTime(f, d)
	byMoney(f, d, soft)
	pickDimensions(f, d, user, total > uint64(bigTokens))
	return d.Done()
}

// costOf: of the prefixes that match, the longest counts.
func costOf(model string) (cost uint32) {
	longest := 0
	for _, m := range models {
		if len(m.prefix) >= longest && strings.HasPrefix(model, m.prefix) {
			longest, cost = len(m.prefix), m.cost
		}
	}
	return cost
}

func deny(d *weir.Decision, status uint16, message string, wait uint32, reason uint16) int32 {
	d.Deny(status, message, wait)
	d.Reason = reason
	return d.Done()
}

func byMonth(f *weir.Facts, d *weir.Decision, soft bool) {
	share := int64(-1)
	if f.QuotaLimit > 0 {
		share = f.QuotaUsed / max(f.QuotaLimit/1000, 1)
	}
	if share >= softShare {
		if soft {
			d.QuotaMultiplier = 1100
			d.Tier(downgrade)
		} else {
			d.TPMMultiplier = softTPM
		}
		if share >= 2*softShare {
			d.ShadowDeny()
			d.Reason = 3
		}
	}
	if f.DayOfMonth == f.DaysInMonth {
		d.QuotaMultiplier = max(d.QuotaMultiplier, 1050)
	}
}

func byTime(f *weir.Facts, d *weir.Decision) {
	hour := f.MinuteOfWeek % 1440 / 60
	weekend := f.MinuteOfWeek/1440 >= 5
	night := hour >= nightFrom || hour < nightTo
	if nightFrom <= nightTo {
		night = hour >= nightFrom && hour < nightTo
	}
	if night {
		d.QPSMultiplier = nightQPS
	}
	if (night || weekend) && int(f.Tier) == pro {
		d.Burst = 3000
	}
	if f.NowMS/3_600_000%2 == 1 && d.Reason == 0 {
		d.Reason = uint16(100 + hour)
	}
}

func byMoney(f *weir.Facts, d *weir.Decision, soft bool) {
	if int(f.Tier) == enterprise && f.BalanceAvailable < f.EstimatedCost {
		d.Overdraft = f.EstimatedCost - f.BalanceAvailable
		d.PriceMultiplier = 1200
	}
	if f.Has(weir.FlagRetry) {
		d.PriceMultiplier = 1100
	}
	if f.Has(weir.FlagImages|weir.FlagFiles) && int(f.Tier) != enterprise {
		d.OutputTokensCap = bigTokens / 2
	}
	if soft && f.KeyID%7 == 0 {
		d.DoNotBill()
	}
	if f.ConcurrencyLimit > 0 && f.ConcurrencyCurrent >= f.ConcurrencyLimit {
		d.DoNotLimit()
	}
}

func pickDimensions(f *weir.Facts, d *weir.Decision, user string, big bool) {
	key := d.Pick(weir.KindKey)
	if big {
		key.CostMultiplier, key.Multiplier = 1500, 800
	}
	d.Pick(weir.KindModel).CostMultiplier = costOf(f.Attr(weir.AttrModel))
	d.Pick(weir.KindGlobal)
	if f.Tier == 0 {
		d.Pick(weir.KindUser)
	} else {
		org := d.Pick(weir.KindOrg).CountOnly()
		if f.Entropy%100 < uint64(samplePercent) {
			org.Shadow()
		}
	}
	d.Pick(weir.KindIP).SkipIfAbsent()
	if user != "" {
		d.Pick(weir.KindEndUser).Tier(pro)
	}
	pair := d.Pick(weir.KindKeyModel)
	if f.Has(weir.FlagStream) {
		pair.QPSLimit = 5
	}
	pair.TPMLimit = f.TPMLimit / 2
	if f.QPSLimit > 0 && uint64(f.QPSCurrent)*2 > uint64(f.QPSLimit) {
		pair.Burst = 1500
	}
	team, region := f.Attr(teamLabel), f.Attr(regionLabel)
	if team != "" {
		d.Pick(weir.KindCustom).Text("team:").Text(team).QPSLimit = teamQPS
	}
	if strings.HasSuffix(region, "-eu") {
		d.Pick(weir.KindCustom).CountOnly().Text("eu/").Text(region).Text("/").Text(f.Attr(weir.AttrModel))
	}
	if f.Endpoint == weir.EndpointMessages {
		d.Pick(weir.KindChannel)
	} else {
		d.Pick(weir.KindModelChannel)
	}
}
