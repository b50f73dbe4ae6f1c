package main

import (
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-gateway/weir/core/llm"
)

// budgetsOf reads budgets as the command line has them, such as day:limit=2.5,anchor=6,timezone=Asia/Shanghai. What the
// values may be, the gateway says.
func budgetsOf(flags *pflag.FlagSet, flag, currency string) (map[string]any, error) {
	all, err := flags.GetStringArray(flag)
	if err != nil {
		return nil, err
	}
	budgets := map[string]any{}
	for _, one := range all {
		window, rest, ok := strings.Cut(one, ":")
		if _, twice := budgets[window]; twice {
			return nil, usageError("--%s: %s is given twice", flag, window)
		}
		if rest == "none" {
			budgets[window] = nil
			continue
		}
		members := map[string]any{}
		for pair := range strings.SplitSeq(rest, ",") {
			name, value, assigned := strings.Cut(pair, "=")
			if !ok || !assigned {
				return nil, usageError("--%s: expected WINDOW:name=value,... such as day:limit=2.5,anchor=6, or day:none; got %q", flag, one)
			}
			if name == "limit" {
				name = moneyName(name, currency)
			}
			members[name] = scalar(value)
		}
		budgets[window] = members
	}
	return budgets, nil
}

// scalar is a number where the text is one, null for null, else the text.
func scalar(s string) any {
	if n, err := llm.ParseMicro(s); err == nil {
		return json.Number(n.String())
	}
	if s == "null" {
		return nil
	}
	return s
}
