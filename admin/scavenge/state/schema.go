package state

import (
	"fmt"

	"github.com/ncruces/go-sqlite3"
)

// What the header of the file says. Do not change the id; raise the version
// with each change of the schema, or of what the columns mean.
const (
	applicationID = 0x416e5363 // "AnSc"
	schemaVersion = 2
)

// schema are the tables, as SQLite stores their text. Do not change it within a version.
var schema = []struct{ name, sql string }{
	{"chunks", `CREATE TABLE chunks (number INTEGER PRIMARY KEY, weight INTEGER NOT NULL, oldest INTEGER, newest INTEGER)`},
	{"streams", `CREATE TABLE streams (first BLOB PRIMARY KEY NOT NULL, data BLOB NOT NULL) WITHOUT ROWID`},
	{"vals", `CREATE TABLE vals (key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID`},
}

// configure sets the connection up, and makes the tables in a new file.
func (d *DB) configure() error {
	// The mode of locking comes first: with it SQLite keeps the index of the
	// write-ahead log in its own memory, and needs no shared memory to open the file.
	for _, pragma := range []string{
		`locking_mode=EXCLUSIVE`,
		fmt.Sprintf(`page_size=%d`, d.o.PageSize),
		`temp_store=MEMORY`, // only statement journals of single rows use it
		fmt.Sprintf(`cache_size=-%d`, d.o.CacheBytes>>10),
		fmt.Sprintf(`journal_size_limit=%d`, d.o.CacheBytes),
	} {
		if err := d.conn.Exec(`PRAGMA ` + pragma); err != nil {
			return fmt.Errorf("set %s: %w", pragma, err)
		}
	}
	version, err := d.number(`PRAGMA user_version`)
	if err != nil {
		return err
	}
	tables, err := d.number(`SELECT count(*) FROM sqlite_schema`)
	if err != nil {
		return err
	}
	if tables == 0 && version == 0 {
		// Eight bytes at the end of each page are for its checksum.
		if _, err := d.conn.FileControl("main", sqlite3.FCNTL_RESERVE_BYTES, 8); err != nil {
			return fmt.Errorf("ask for checksums: %w", err)
		}
	}
	// FULL, because a transaction has to survive a power cut once Update returned.
	for _, pragma := range []string{`journal_mode=WAL`, `synchronous=FULL`} {
		if err := d.conn.Exec(`PRAGMA ` + pragma); err != nil {
			return fmt.Errorf("set %s: %w", pragma, err)
		}
	}
	if tables == 0 && version == 0 {
		return d.create()
	}
	return d.check(version, tables)
}

func (d *DB) create() error {
	sql := `BEGIN IMMEDIATE;`
	for _, table := range schema {
		sql += table.sql + `;`
	}
	sql += fmt.Sprintf(`PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT`, applicationID, schemaVersion)
	if err := d.conn.Exec(sql); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}

// check compares a file with what this version would have made.
func (d *DB) check(version, tables int64) error {
	id, err := d.number(`PRAGMA application_id`)
	if err != nil {
		return err
	}
	switch {
	case id != applicationID:
		return &unusableError{reason: fmt.Sprintf("it is another database, of application %#x", id)}
	case version != schemaVersion:
		return &unusableError{reason: fmt.Sprintf("its schema has version %d, this one is %d", version, schemaVersion)}
	case tables != int64(len(schema)):
		return &unusableError{reason: fmt.Sprintf("it has %d tables", tables)}
	}
	for _, table := range schema {
		n, err := d.number(fmt.Sprintf(`SELECT count(*) FROM sqlite_schema WHERE name = '%s' AND sql = '%s'`, table.name, table.sql))
		if err != nil {
			return err
		}
		if n != 1 {
			return &unusableError{reason: "its table " + table.name + " is another one"}
		}
	}
	// Without the reserve pages have no checksums.
	if r, err := d.conn.FileControl("main", sqlite3.FCNTL_RESERVE_BYTES); err != nil || r != 8 {
		if err != nil {
			return fmt.Errorf("ask for checksums: %w", err)
		}
		return &unusableError{reason: "its pages have no checksums"}
	}
	return nil
}

// number returns the first column of the one row of a query.
func (d *DB) number(sql string) (n int64, err error) {
	st, _, err := d.conn.Prepare(sql)
	if err != nil {
		return 0, fmt.Errorf("prepare %s: %w", sql, err)
	}
	if st.Step() {
		n = st.ColumnInt64(0)
	}
	err = st.Err()
	if closeErr := st.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", sql, err)
	}
	return n, nil
}

// statements are prepared once, as preparing costs more than running most of them.
type statements struct {
	ready bool
	all   []*sqlite3.Stmt

	value, setValue, removeValue      *sqlite3.Stmt
	row, nextKey, putRow, removeRow   *sqlite3.Stmt
	rowsFrom                          *sqlite3.Stmt
	addWeight, resetWeights, setTimes *sqlite3.Stmt
	chunks                            *sqlite3.Stmt
}

func (s *statements) prepare(c *sqlite3.Conn) error {
	for _, p := range []struct {
		to  **sqlite3.Stmt
		sql string
	}{
		{&s.value, `SELECT value FROM vals WHERE key = ?`},
		{&s.setValue, `INSERT OR REPLACE INTO vals VALUES (?, ?)`},
		{&s.removeValue, `DELETE FROM vals WHERE key = ?`},
		{&s.row, `SELECT first, data FROM streams WHERE first <= ? ORDER BY first DESC LIMIT 1`},
		{&s.nextKey, `SELECT first FROM streams WHERE first > ? ORDER BY first LIMIT 1`},
		{&s.putRow, `INSERT OR REPLACE INTO streams VALUES (?, ?)`},
		{&s.removeRow, `DELETE FROM streams WHERE first = ?`},
		{&s.rowsFrom, `SELECT data FROM streams WHERE first >= coalesce((SELECT first FROM streams WHERE first <= ?1 ORDER BY first DESC LIMIT 1), x'') ORDER BY first`},
		{&s.addWeight, `INSERT INTO chunks (number, weight) VALUES (?1, ?2) ON CONFLICT (number) DO UPDATE SET weight = weight + ?2`},
		{&s.resetWeights, `UPDATE chunks SET weight = 0 WHERE number BETWEEN ? AND ? AND weight <> 0`},
		{&s.setTimes, `INSERT INTO chunks VALUES (?1, 0, ?2, ?3) ON CONFLICT (number) DO UPDATE SET oldest = ?2, newest = ?3`},
		{&s.chunks, `SELECT number, weight, oldest, newest FROM chunks ORDER BY number`},
	} {
		st, _, err := c.PrepareFlags(p.sql, sqlite3.PREPARE_PERSISTENT)
		if err != nil {
			return fmt.Errorf("prepare %s: %w", p.sql, err)
		}
		*p.to = st
		s.all = append(s.all, st)
	}
	s.ready = true
	return nil
}

func (s *statements) close() {
	s.ready = false
	for _, st := range s.all {
		// What it returns is the error of its last run, which is known.
		_ = st.Close()
	}
	s.all = nil
}
