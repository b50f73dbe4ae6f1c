package main

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/weir-gateway/weir/core/llm"
)

// flagError says in one line what is wrong with the flags of c.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() && c.Flags().NArg() > 0 {
		return unknownChild(c, c.Flags().Arg(0))
	}
	text := err.Error()
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name, short := "--"+unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
		if short != "" {
			name = "-" + short // of several letters: a long name behind one dash
		}
		text = "unknown flag " + name
		if meant := near(strings.TrimLeft(name, "-"), flagsOf(c)); meant != nil && len(short) != 1 {
			return usageError("%s: %s; did you mean --%s?", c.CommandPath(), text, either(meant, ", --", " or --"))
		}
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		text = "--" + bare.GetFlag().Name + " needs a value"
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		text = badValue(bad)
	}
	return usageError("%s: %s; see `%s --help`", c.CommandPath(), text, c.CommandPath())
}

// paramsFlag is --params, and what it was called before.
func paramsFlag(c *cobra.Command, to *string, usage, old, oldShort string) {
	c.Flags().StringVar(to, "params", "", usage)
	c.Flags().StringVarP(to, old, oldShort, "", usage)
	c.Flags().Lookup(old).Hidden = true
}

func flagsOf(c *cobra.Command) (names []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// badValue says what a flag takes, to somebody who does not read Go.
func badValue(bad *pflag.InvalidValueError) string {
	f := bad.GetFlag()
	want := map[string]string{"int": "a whole number", "int64": "a whole number", "float64": "a number", "bool": "true or false",
		"duration": "a time such as 30s or 2m", "stringToString": "name=value", "stringSlice": "names such as a,b"}[f.Value.Type()]
	switch {
	case want == "":
		return "--" + f.Name + ": " + bad.Unwrap().Error()
	case errors.Is(bad.Unwrap(), strconv.ErrRange):
		want += " that fits 64 bits"
	}
	return "--" + f.Name + ": expected " + want + ", got " + strconv.Quote(bad.GetValue())
}

// maxMeant is how many names are offered for one that is unknown.
const maxMeant = 4

// near is what somebody may have meant by word: the names that have it between their hyphens, else the nearest one, else
// those of which it is a beginning; nil: none, or too many.
func near(word string, names []string) (meant []string) {
	among := func(match func(part string) bool) (found []string) {
		for _, name := range names {
			if slices.ContainsFunc(append(strings.Split(name, "-"), name), match) {
				found = append(found, name)
			}
		}
		return found
	}
	if meant = among(func(part string) bool { return part == word }); len(meant) == 0 {
		if nearest := llm.Nearest(word, names); nearest != "" {
			return []string{nearest}
		}
		meant = among(func(part string) bool { return len(word) > 2 && strings.HasPrefix(part, word) })
	}
	if len(meant) > maxMeant {
		return nil
	}
	return meant
}

// either joins names, the last by another word.
func either(names []string, comma, or string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], comma) + or + names[last]
}

// unknownChild names the command nearest to name, or one further down that is called so, or all there are.
func unknownChild(c *cobra.Command, name string) error {
	var names, below []string
	for _, child := range c.Commands() {
		if child.Hidden {
			continue
		}
		names = append(names, child.Name())
		for _, grandchild := range child.Commands() {
			if grandchild.Name() == name && !grandchild.Hidden {
				below = append(below, child.Name()+" "+name)
			}
		}
	}
	meant := near(name, names)
	if meant == nil && len(below) > 0 && len(below) <= maxMeant {
		meant = below
	}
	if meant != nil {
		return usageError("unknown command %q for %q; did you mean \"%s\"?", name, c.CommandPath(), either(meant, `", "`, `" or "`))
	}
	return usageError("unknown command %q for %q; it has %s", name, c.CommandPath(), strings.Join(names, ", "))
}

// needsOne refuses c when none of the fields' flags was given: it would change nothing.
func needsOne(c *cobra.Command, fields []field) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		var names []string
		for _, f := range fields {
			if c.Flags().Changed(f.flag) {
				return run(c, args)
			}
			names = append(names, "--"+f.flag)
		}
		return usageError("%s needs a flag that says what to change: %s", c.CommandPath(), strings.Join(names, ", "))
	}
	return c
}

// fixed is the value of a flag that a command knows only to refuse: what it would change stays as it was created.
type fixed string

func (f fixed) Set(string) error { return errors.New(string(f)) }
func (f fixed) String() string   { return "" }

// Type implements pflag.Value.
func (f fixed) Type() string { return "fixed" }

// byFlag makes a refusal of the API about the fields of a request speak of the flags that they came from; one about a
// value that was given, or was not, is an error in usage.
func byFlag(err error, fields []field, currency string) error {
	refused, ok := errors.AsType[*refusal](err)
	if !ok {
		return err
	}
	text, usage := refused.message, false
	for _, f := range fields {
		name, flag := f.member(currency), "--"+f.flag
		rest, about := strings.CutPrefix(text, name+": ")
		if about {
			text = strings.Replace(flag+": "+rest, ": this field is required", " is required", 1)
		}
		if strings.ContainsFunc(name, unicode.IsUpper) { // a plain word may be meant as one
			text = regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).ReplaceAllLiteralString(text, flag)
		}
		usage = usage || about || refused.param == name
		if refused.param == name && f.kind == money && strings.Contains(text, "unknown field") {
			return usageError("the gateway has no field %s; is its currency another than %s? --currency names it", name, currency)
		}
	}
	if usage && refused.status == http.StatusBadRequest {
		return usageError("%s", text)
	}
	return errors.New(text)
}

// checkURL refuses an admin address that no request can go to; from is where it was given.
func checkURL(from, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usageError("%s: expected http://host:port, got %q", from, address)
	}
	return nil
}
