package llm_test

import (
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// Names that only a machine's files make are no zones, whatever this machine has.
func TestZoneNames(t *testing.T) {
	for _, name := range []string{"", "Local", "localtime", "posixrules", "right/UTC", "posix/UTC", "./Europe/Berlin", "Europe//Berlin", "Europe/../UTC",
		"../UTC", "/UTC", "Europe", "Europe/", "europe/berlin", "Europe/Berlin\n", "UTC\nWET", "\n", "Factory", "tzdata.zi"} {
		if _, ok := llm.Zone(name); ok {
			t.Errorf("%q is taken for a zone", name)
		}
	}
	names := llm.ZoneNames()
	for _, name := range append(names, "UTC", "Europe/Berlin", "Asia/Calcutta", "US/Pacific", "Etc/GMT+5") {
		if zone, ok := llm.Zone(name); !ok || zone.String() != name {
			t.Errorf("%q is no zone", name)
		}
	}
	if len(names) < 500 {
		t.Errorf("%d names", len(names))
	}
}
