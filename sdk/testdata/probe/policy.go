// A module that uses every part of the SDK; the test tells it by the model attribute what to do.
package main

import (
	"strings"

	"policy/weir"
)

func main() {}

func init() {
	weir.Serve(configure, decide)
	weir.Want(weir.AttrModel, weir.AttrKeyName, weir.AttrEndUser)
}

func configure(config weir.Config) int32 {
	p := config.Params
	if p.Absent() {
		return 0
	}
	list := p.Get("list").Elements()
	for i, ok := range []bool{
		p.Get("text").String("") == "a\"b\\c/\b\f\n\r\té😀\u0001",
		p.Get("number").Integer(0) == -1234567890123,
		p.Get("fraction").Integer(7) == 7 && p.Get("big").Integer(8) == 8 && p.Get("text").Integer(9) == 9,
		p.Get("yes").Bool(false) && !p.Get("no").Bool(true) && p.Get("none").Bool(true),
		p.Get("none").Absent() && p.Get("missing").Absent() && !p.Get("no").Absent(),
		len(list) == 3 && list[0].Integer(0) == 1 && list[1].Get("deep").Elements()[1].String("") == "}]",
		len(list) == 3 && len(list[2].Elements()) == 0 && p.Get("empty").Get("x").String("fallback") == "fallback",
		config.Tier("b") == 1 && config.Tier("c") == -1 && config.Label("y") == 9 && config.Label("z") == -1,
	} {
		if !ok {
			return int32(i + 1)
		}
	}
	return 0
}

func decide(f *weir.Facts, d *weir.Decision) int32 {
	switch f.Attr(weir.AttrModel) {
	case "match":
		return match(f.Attr(weir.AttrEndUser))
	case "facts":
		return numbers(f)
	case "everything":
		everything(f, d)
	case "deny":
		d.Deny(429, "später 😀", 1500)
		d.Reason = 7
	case "shadow":
		d.ShadowDeny()
	case "full":
		for range 16 {
			d.Pick(weir.KindKey)
		}
	case "overfull":
		for range 17 {
			d.Pick(weir.KindKey)
		}
	case "arena":
		d.Pick(weir.KindCustom).Text(strings.Repeat("0123456789", 147)).Text("é") // the last two of 1472 bytes
	case "arena overfull":
		d.Pick(weir.KindCustom).Text(strings.Repeat("0123456789", 147)).Text("xé")
	case "log":
		weir.Log(weir.LogWarn, "straße 😀")
		return weir.Abstained
	default:
		return weir.Abstained
	}
	return d.Done()
}

// Each bit of the answer is one comparison of the end user's text.
func match(a string) int32 {
	bits := int32(1 << 8)
	for i, ok := range []bool{
		a == "grüße 😀 x", strings.HasPrefix(a, "grüß"), strings.HasPrefix(a, "grüss"), strings.HasSuffix(a, "😀 x"),
		strings.HasSuffix(a, ""), a == "grüße 😀 xx", weir.On(a), a == "",
	} {
		if ok {
			bits |= 1 << i
		}
	}
	return bits
}

func numbers(f *weir.Facts) int32 {
	for i, ok := range []bool{
		f.NowMS == 1_700_000_000_000 && f.Entropy == 0xfedcba9876543210,
		f.Has(weir.FlagStream) && !f.Has(weir.FlagImages) && f.Endpoint == 5 && f.InputTokens == 11 && f.OutputTokensMax == 12,
		f.Choices == 13 && f.BodyBytes == 14 && f.KeyID == 15 && f.UserID == 16 && f.OrgID == 17,
		f.QPSLimit == 18 && f.QPSCurrent == 19 && f.TPMLimit == 20 && f.TPMCurrent == 21,
		f.ConcurrencyLimit == 22 && f.ConcurrencyCurrent == 23 && f.QuotaLimit == 24 && f.QuotaUsed == 25,
		f.BalanceAvailable == -26 && f.EstimatedCost == 27 && f.MinuteOfWeek == 28,
		f.DayOfMonth == 29 && f.DaysInMonth == 30 && f.Tier == 31 && f.Generation == 32,
	} {
		if !ok {
			return int32(i + 2)
		}
	}
	return weir.Decided
}

func everything(f *weir.Facts, d *weir.Decision) {
	d.Tier(1)
	d.Tier(-1)
	d.DoNotBill()
	d.DoNotLimit()
	d.QPSMultiplier, d.TPMMultiplier, d.QuotaMultiplier, d.Burst = 1001, 1002, 1003, 1004
	d.Overdraft, d.OutputTokensCap, d.PriceMultiplier = 1<<40, 1005, 1006
	end := d.Pick(weir.KindEndUser).SkipIfAbsent().Shadow()
	end.QPSLimit, end.TPMLimit = 5, 6
	team := d.Pick(weir.KindCustom).CountOnly().Tier(0).Text("team:").Text(f.Attr(weir.AttrKeyName)).Text("/ü")
	team.Multiplier, team.Burst, team.CostMultiplier = 7, 8, 9
	d.Pick(weir.KindCustom).Text("second")
}
