package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/weir-gateway/weir/core/llm"
)

//go:embed migrations/*.sql
var migrations embed.FS

const versions = "weir_schema" // the table of the migrations that were made

// newest is the number of the last migration.
func newest() (n int64, err error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no migrations: %w", err)
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(files[len(files)-1], "migrations/"), "_")
	return strconv.ParseInt(number, 10, 64)
}

// prepare brings the tables up to this program's. The lock keeps others away meanwhile.
func (s *Store) prepare(ctx context.Context, conn *pgx.Conn) error {
	want, err := newest()
	if err != nil {
		return err
	}
	has, err := schemaOf(ctx, conn)
	switch {
	case err != nil:
		return s.place.failed("reading", err)
	case has == 0 && s.o.Existing:
		return llm.Errorf(llm.KindNotFound, "there is no ledger in the database %s", s.place.name)
	case has > want:
		return &llm.Error{Kind: llm.KindConflict, Code: "store_newer", Message: fmt.Sprintf("the database %s was brought to schema %d by a newer version of weir, and this one knows schemas up to %d; use that version", s.place.name, has, want)}
	case has < want:
		if err := s.migrate(ctx); err != nil {
			return s.place.failed("preparing", err)
		}
	}
	_, err = conn.Exec(ctx, "INSERT INTO weir_node (node) VALUES ($1) ON CONFLICT DO NOTHING", node)
	return s.place.failed("preparing", err)
}

// schemaOf is the number of the newest migration that was made; 0: none.
func schemaOf(ctx context.Context, conn *pgx.Conn) (n int64, err error) {
	var there bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versions).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versions+" WHERE is_applied").Scan(&n)
	return n, err
}

func (s *Store) migrate(ctx context.Context) error {
	db := stdlib.OpenDB(*s.place.pool.ConnConfig)
	defer func() { _ = db.Close() }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versions), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}
