package policy

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// A module has no zone database. A member of params whose schema has the format time-zone may hold the name of a zone
// all the same: beside it, under its name and "_table", the module is given the zone as a table of offsets. A table is
// part of params like what a person wrote: kept with them, it makes a replay exact after a zone's rules have changed.
const (
	zoneFormat  = "time-zone"
	tableSuffix = "_table"
	maxZones    = 8 // in one params document
)

// zoneTable is a zone by its offsets from UTC, in minutes: the first one holds from the beginning, and each that follows
// from the minute since 1970 before it. Tables reach from 2020 to 2060.
type zoneTable struct {
	Name    string  `json:"name"`
	Offsets []int64 `json:"offsets"`
}

func tablesReach() (from, to time.Time) {
	return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC)
}

// WithZones gives params with the tables of the zones that they name, made anew. An unknown zone is a *llm.Error.
// Params that name none, or that do not fit the schema, come back as they are.
func WithZones(schema, params []byte) ([]byte, error) { return withZones(schema, params, false) }

// WithoutZones gives params as a person wrote them: without the tables that WithZones makes again.
func WithoutZones(schema, params []byte) json.RawMessage {
	var names struct {
		Properties map[string]struct{ Format string }
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(schema, &names) != nil || json.Unmarshal(params, &members) != nil {
		return params
	}
	had := len(members)
	for name, p := range names.Properties {
		if p.Format == zoneFormat {
			delete(members, name+tableSuffix)
		}
	}
	if len(members) == had {
		return params
	}
	return marshalled(members)
}

// marshalled is members as a guest's small JSON reader takes them: it need not know \u003c.
func marshalled(members map[string]json.RawMessage) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(members) // they were JSON before
	return bytes.TrimSpace(out.Bytes())
}

// withZones makes the tables; keep: but those that are there.
func withZones(schema, params []byte, keep bool) ([]byte, error) {
	var names struct {
		Properties map[string]struct{ Format string }
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(schema, &names) != nil || json.Unmarshal(params, &members) != nil {
		return params, nil // of a schema with other formats than texts it is the validator's to say what it means
	}
	changed, tables := false, 0
	for _, name := range slices.Sorted(maps.Keys(names.Properties)) {
		if names.Properties[name].Format != zoneFormat {
			continue
		}
		table, err := tableFor(name, members[name], members[name+tableSuffix], keep)
		if table != nil {
			tables++
		}
		if err == nil && tables > maxZones {
			err = refuse("params: more than %d time zones", maxZones)
		}
		if err != nil {
			return nil, err
		}
		if bytes.Equal(table, members[name+tableSuffix]) {
			continue
		}
		changed = true
		if members[name+tableSuffix] = table; table == nil {
			delete(members, name+tableSuffix)
		}
	}
	if !changed {
		return params, nil
	}
	return marshalled(members), nil
}

// tableFor is the table beside a member; nil: none belongs there.
func tableFor(member string, value, there json.RawMessage, keep bool) (json.RawMessage, error) {
	var zone string
	if json.Unmarshal(value, &zone) != nil || zone == "" || zone == "key" || zone == "UTC" || zone[0] == '+' || zone[0] == '-' {
		return nil, nil
	}
	var old zoneTable
	if keep && json.Unmarshal(there, &old) == nil && old.Name == zone {
		return there, nil
	}
	loc, ok := llm.Zone(zone)
	if !ok {
		return nil, refuse("params: %s: no time zone %.64q%s; want \"key\", \"UTC\", an offset such as \"+08:00\", or a name such as \"Europe/Berlin\"",
			member, zone, nearest(zone, llm.ZoneNames()))
	}
	return json.Marshal(zoneTable{zone, offsetsOf(loc)})
}

// offsetsOf looks at a zone day by day, and finds the minutes of its changes in between. time.Time.ZoneBounds would be
// shorter; behind the last listed change it stops at the last day of a leap year.
func offsetsOf(loc *time.Location) []int64 {
	const day = 24 * 60
	from, to := tablesReach()
	at, end := from.Unix()/60, to.Unix()/60
	offsets := []int64{offsetAt(loc, at)}
	for ; at < end; at += day {
		now := offsets[len(offsets)-1]
		if offsetAt(loc, at+day) == now {
			continue
		}
		change := at + 1 + int64(sort.Search(day-1, func(i int) bool { return offsetAt(loc, at+1+int64(i)) != now }))
		offsets = append(offsets, change, offsetAt(loc, change))
	}
	return offsets
}

// offsetAt is in minutes, at a minute since 1970.
func offsetAt(loc *time.Location, minute int64) int64 {
	_, seconds := time.Unix(minute*60, 0).In(loc).Zone()
	return int64(seconds / 60)
}
