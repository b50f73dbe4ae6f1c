package admin

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// sheetTypes are the formats of a sheet and their media types.
var sheetTypes = map[string]string{"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}

// sheet writes objects of one shape one by one: as lines of JSON, or as a table whose head is their members' names.
type sheet struct {
	lines *json.Encoder
	table *csv.Writer
	head  []string // of the table, until it is written
}

// newSheet starts a sheet; like is an object of the shape.
func newSheet(w io.Writer, format string, like object) *sheet {
	if format == "ndjson" {
		return &sheet{lines: json.NewEncoder(w)}
	}
	s := &sheet{table: csv.NewWriter(w)}
	for _, m := range like {
		s.head = append(s.head, m.name)
	}
	return s
}

func (s *sheet) row(v object) error {
	if s.lines != nil {
		return s.lines.Encode(v)
	}
	if err := s.writeHead(); err != nil {
		return err
	}
	cells := make([]string, len(v))
	for i, m := range v {
		cells[i] = cell(m.value)
	}
	return s.table.Write(cells)
}

// writeHead comes with the first row, so that an error before it can still be answered as one.
func (s *sheet) writeHead() error {
	head := s.head
	if s.head = nil; head == nil {
		return nil
	}
	return s.table.Write(head)
}

// end writes what is buffered, and the head of a table without rows.
func (s *sheet) end() error {
	if s.lines != nil {
		return nil
	}
	if err := s.writeHead(); err != nil {
		return err
	}
	s.table.Flush()
	return s.table.Error()
}

// cell is a value in a table; a text that a spreadsheet would run as a formula is quoted.
func cell(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case decimal:
		return llm.Micro(x).String()
	case llm.Micro:
		return strconv.FormatInt(int64(x), 10)
	case string:
		if x != "" && strings.ContainsRune("=+-@\t\r", rune(x[0])) {
			return "'" + x
		}
		return x
	}
	return fmt.Sprint(v)
}
