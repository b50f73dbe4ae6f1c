package llm

import (
	_ "embed"
	"strings"
	"time"
	_ "time/tzdata" // a machine without zone files has the same zones
)

// zoneNames are those of the zone database that is part of the program, a line each.
//
//go:embed zones.txt
var zoneNames string

// Zone loads a time zone by its IANA name; false: there is none. Only names of the program's own zone database count, so
// that none is known on one machine and unknown on another: not "Local", "localtime", "posix/UTC" or "./Europe/Berlin". The
// rules of a zone are the machine's where it has the file, as they may be newer, and the program's own otherwise.
func Zone(name string) (*time.Location, bool) {
	if name == "" || strings.Contains(name, "\n") || !strings.Contains("\n"+zoneNames, "\n"+name+"\n") {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}

// ZoneNames lists what Zone knows, in the order of the alphabet; for telling the nearest one.
func ZoneNames() []string { return strings.Fields(zoneNames) }
