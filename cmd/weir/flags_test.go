package main

import (
	"strings"
	"testing"
)

// TestFlagsAreExplained: a mistake on the command line is one line that says what was expected, and exit code 2.
func TestFlagsAreExplained(t *testing.T) {
	_, env := stubAdmin(t)
	for args, want := range map[string]string{
		"attack --totl 5":                               "weir attack: unknown flag --totl; did you mean --total?",
		"attack --nonsense":                             "weir attack: unknown flag --nonsense; see",
		"attack --total abc":                            `weir attack: --total: expected a whole number, got "abc"; see`,
		"attack --rate fast":                            `--rate: expected a number, got "fast"`,
		"attack --timeout 5":                            `--timeout: expected a time such as 30s or 2m, got "5"`,
		"attack --stream=maybe":                         `--stream: expected true or false, got "maybe"`,
		"attack --total":                                "weir attack: --total needs a value",
		"key create --qps-limit 1e3":                    `weir key create: --qps-limit: expected a whole number, got "1e3"`,
		"key limits 1 --tpm-limit 99999999999999999999": "--tpm-limit: expected a whole number that fits 64 bits",
		"key create --label tier":                       `--label: expected name=value, got "tier"`,
		"key list --limt 5":                             "did you mean --limit?",
		"serv":                                          `weir: unknown command "serv" for "weir"; did you mean "serve"?`,
		"--versoin":                                     "weir: unknown flag --versoin; did you mean --version?",
		"--foo":                                         "weir: unknown flag --foo; see `weir --help`",
		"ledger --foo":                                  "weir ledger: unknown flag --foo; see `weir ledger --help`",
		"serv --port 5":                                 `unknown command "serv" for "weir"; did you mean "serve"?`,
		"help serv":                                     `unknown command "serv" for "weir"; did you mean "serve"?`,
		"help key lst":                                  `unknown command "lst" for "weir key"; did you mean "list"?`,
		"nonsense":                                      `unknown command "nonsense" for "weir"; it has attack,`,
		"sim":                                           `unknown command "sim" for "weir"; did you mean "upstream-sim"?`,
		"sim --listen 127.0.0.1:1":                      `unknown command "sim" for "weir"; did you mean "upstream-sim"?`,
		"help sim":                                      `unknown command "sim" for "weir"; did you mean "upstream-sim"?`,
		"verify":                                        `unknown command "verify" for "weir"; did you mean "ledger verify"?`,
		"check":                                         `unknown command "check" for "weir"; did you mean "config check" or "policy check"?`,
		"list":                                          `unknown command "list" for "weir"; it has attack,`,
		"policy roll":                                   `unknown command "roll" for "weir policy"; did you mean "rollback"?`,
		"attack --tokens 5":                             "weir attack: unknown flag --tokens; did you mean --max-tokens?",
		"attack --conc 5":                               "weir attack: unknown flag --conc; did you mean --concurrency?",
		"attack -total 5":                               "weir attack: unknown flag -total; did you mean --total?",
		"attack -x 5":                                   "weir attack: unknown flag -x; see `weir attack --help`",
		"key limits 1 --limit 5":                        "weir key limits: unknown flag --limit; did you mean --concurrency-limit, --qps-limit or --tpm-limit?",
		"key lst --limit 5":                             `unknown command "lst" for "weir key"; did you mean "list"?`,
		"org update 1":                                  "weir org update needs a flag that says what to change: --name, --qps-limit, --tpm-limit",
		"key limits 1":                                  "weir key limits needs a flag that says what to change: --qps-limit, --tpm-limit, --concurrency-limit, --monthly-quota",
		"limits set":                                    "weir limits set needs a flag that says what to change: --qps-limit",
		"user balance 1":                                "weir user balance needs a flag that says what to change: --delta, --set",
		"user update 1 --balance 5":                     "weir user update: --balance: money moves with `weir user balance ID --delta AMOUNT`",
		"user update 1 --org-id 2":                      "--org-id: a user stays in its org",
		"key update 1 --user-id 2":                      "--user-id: a key stays with its user",
		"key list --admin foo":                          `--admin: expected http://host:port, got "foo"`,
		"key list --admin 127.0.0.1:3001":               `--admin: expected http://host:port, got "127.0.0.1:3001"`,
		"user balance 1 --set 5 --currency=":            "--currency: expected the three letters",
		"demo --key bad":                                "demo: --key: malformed key: expected sk-weir-",
		"demo --upstream foo":                           `--upstream: expected host:port, such as 127.0.0.1:3009, got "foo"`,
		"upstream-sim --listen foo":                     `--listen: expected host:port, such as 127.0.0.1:3009, got "foo"`,
	} {
		stdout, stderr, code := weir(t, env, strings.Fields(args)...)
		if strings.Contains(stderr, "weir: weir:") || !strings.HasPrefix(stderr, "weir: ") {
			t.Errorf("weir %s: %q does not begin with the program's name once", args, stderr)
		}
		if code != exitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "\t") || stdout != "" {
			t.Errorf("weir %s: exit %d, %q %q, want %d and %q", args, code, stdout, stderr, exitUsage, want)
		}
	}
	if help := must(t, nil, "user", "update", "--help"); strings.Contains(help, "--balance") || strings.Contains(help, "--org-id") || !strings.Contains(help, "--name") {
		t.Errorf("user update offers what it refuses:\n%s", help)
	}
	if _, stderr, code := weir(t, map[string]string{"WEIR_ADMIN_TOKEN": "t", "WEIR_ADMIN_URL": "foo"}, "key", "list"); code != exitUsage || !strings.Contains(stderr, "WEIR_ADMIN_URL: expected") {
		t.Errorf("a bad WEIR_ADMIN_URL: exit %d, %s", code, stderr)
	}
}

// TestRefusalsSpeakOfFlags: the gateway names fields, and the command line flags.
func TestRefusalsSpeakOfFlags(t *testing.T) {
	env := demo(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"org create", exitUsage, "--name is required"},
		{"user create --name x", exitUsage, "--org-id is required"},
		{"key create --name x", exitUsage, "--user-id is required"},
		{"channel create --name x", exitUsage, "--provider is required"},
		{"key create --user-id 1 --name x --qps-limit -1", exitUsage, "--qps-limit: expected"},
		{"user balance 1 --delta 1 --set 2", exitUsage, "expected either --delta or --set"},
		{"user balance 1 --delta 0", exitUsage, "--delta: expected an amount other than 0"},
		{"user balance 1 --delta 1 --currency usd", exitUsage, "the gateway has no field deltaUsd; is its currency another than usd?"},
		{"key list --limit abc", exitUsage, "--limit: expected"},
		{"usage --format xml", exitUsage, "--format: expected"},
		{"usage --from yesterday --format csv", exitUsage, "--from: expected"},
		{"user balance 99 --delta 1", exitFail, "99"},
	} {
		_, stderr, code := weir(t, env, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("weir %s: exit %d, %q, want %d and %q", c.args, code, stderr, c.code, c.want)
		}
	}
}

// TestBalanceBelowZeroIsAskedFor: what takes more than is there wants --yes; what does not, does not.
func TestBalanceBelowZeroIsAskedFor(t *testing.T) {
	env := demo(t)
	_, stderr, code := weir(t, env, "user", "balance", "1", "--delta", "-100.5")
	if code != exitUsage || !strings.Contains(stderr, "user 1 has 100, and would have -0.5; give --yes") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	must(t, env, "user", "balance", "1", "--delta", "-100")
	if out := must(t, env, "user", "balance", "1", "--delta", "-1", "--yes", "--json"); !strings.Contains(out, `"balanceCny": -1`) {
		t.Errorf("with --yes: %s", out)
	}
	must(t, env, "user", "balance", "1", "--set", "null")
	if _, stderr, code = weir(t, env, "user", "balance", "1", "--delta", "-1"); code != exitUsage || !strings.Contains(stderr, "--set gives it one") {
		t.Errorf("of an unmetered user: exit %d, %s", code, stderr)
	}
}

// TestAttackSaysWhatWasWrong: an attack that met no limit fails in the gateway's words; its JSON is there all the same.
func TestAttackSaysWhatWasWrong(t *testing.T) {
	env := demo(t)
	out, stderr, code := weir(t, env, "attack", "--base", env["WEIR_URL"], "--key", "sk-weir-wrong", "--total", "3")
	if code != exitFail || !strings.Contains(out, `"401": 3`) || !strings.Contains(out, `"first_error": "401: `) || !strings.Contains(stderr, "weir: no request got as far as a limit: 401: ") {
		t.Errorf("with a wrong key: exit %d, %s%s", code, out, stderr)
	}
	out, stderr, code = weir(t, env, "attack", "--base", env["WEIR_URL"], "--model", "gpt-4", "--total", "3", "--concurrency", "1")
	if code != exitFail || !strings.Contains(out, `"404"`) || !strings.Contains(stderr, "404: ") {
		t.Errorf("with a wrong model: exit %d, %s%s", code, out, stderr)
	}
	must(t, env, "user", "balance", "1", "--set", "0")
	out, stderr, code = weir(t, env, "attack", "--total", "1", "--concurrency", "1")
	if code != exitDone || !strings.Contains(out, `"402": 1`) || !strings.Contains(stderr, "note: the first error that is no 429 is 402: ") {
		t.Errorf("without a balance: exit %d, %s%s", code, out, stderr)
	}
}
