-- +goose Up
-- A node is one gateway's part of the ledger: its log, its totals, its documents. It is written by whoever raised its
-- epoch last; batch counts what was written.
CREATE TABLE weir_node (
  node  text COLLATE "C" PRIMARY KEY,
  epoch bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
  batch bigint NOT NULL DEFAULT 0 CHECK (batch >= 0),
  host  text NOT NULL DEFAULT '',
  pid   bigint NOT NULL DEFAULT 0,
  since timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10);

-- What users were given and charged. Amounts are in millionths of the currency's unit.
CREATE TABLE weir_balance (
  node    text COLLATE "C" NOT NULL,
  key     bytea NOT NULL CHECK (length(key) = 9 AND get_byte(key, 0) = 117), -- u, user
  credits bigint NOT NULL,
  posted  bigint NOT NULL CHECK (posted >= 0),
  PRIMARY KEY (node, key)
) WITH (fillfactor = 50);

-- What keys have used in their periods.
CREATE TABLE weir_use (
  node text COLLATE "C" NOT NULL,
  key  bytea NOT NULL CHECK (length(key) = 13 AND get_byte(key, 0) = 113), -- q, key, label
  used bigint NOT NULL CHECK (used >= 0),
  PRIMARY KEY (node, key)
) WITH (fillfactor = 50);

-- Everything else, as the ledger encodes it.
CREATE TABLE weir_entry (
  node  text COLLATE "C" NOT NULL,
  key   bytea NOT NULL CHECK (length(key) > 0
    AND NOT (length(key) = 9 AND get_byte(key, 0) = 117) AND NOT (length(key) = 13 AND get_byte(key, 0) = 113)),
  value bytea NOT NULL,
  PRIMARY KEY (node, key)
);

-- All of it, in the order of keys.
CREATE VIEW weir_all AS
  SELECT node, key, value, 0::bigint AS credits, 0::bigint AS spent FROM weir_entry
  UNION ALL SELECT node, key, NULL::bytea, credits, posted FROM weir_balance
  UNION ALL SELECT node, key, NULL::bytea, 0::bigint, used FROM weir_use;

-- What was spent stays spent: money that a program forgets is money that is spent twice. A balance below zero is no
-- mistake (a debt, a cut, a user without a balance), so there is nothing to hold it to. A restore that failed is taken
-- back whole.
-- +goose StatementBegin
CREATE FUNCTION weir_spent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND EXISTS (SELECT FROM weir_entry WHERE node = OLD.node AND key = 'mrestoring'::bytea) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'what was spent cannot become less: % of % in %', encode(OLD.key, 'hex'), OLD.node, TG_TABLE_NAME
    USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END $$;
-- +goose StatementEnd
CREATE TRIGGER weir_balance_spent BEFORE UPDATE ON weir_balance FOR EACH ROW
  WHEN (NEW.posted < OLD.posted OR NEW.node <> OLD.node OR NEW.key <> OLD.key) EXECUTE FUNCTION weir_spent();
CREATE TRIGGER weir_balance_kept BEFORE DELETE ON weir_balance FOR EACH ROW
  WHEN (OLD.posted > 0) EXECUTE FUNCTION weir_spent();
CREATE TRIGGER weir_use_spent BEFORE UPDATE ON weir_use FOR EACH ROW
  WHEN (NEW.used < OLD.used OR NEW.node <> OLD.node OR NEW.key <> OLD.key) EXECUTE FUNCTION weir_spent();
CREATE TRIGGER weir_use_kept BEFORE DELETE ON weir_use FOR EACH ROW
  WHEN (OLD.used > 0) EXECUTE FUNCTION weir_spent();

-- What is written here synchronously makes stable all that was written before.
CREATE TABLE weir_flush (
  node text COLLATE "C" PRIMARY KEY,
  at   timestamptz NOT NULL
) WITH (fillfactor = 10);

-- Every batch begins with this: it counts the batch, and fails when the node has another owner, or has not what its owner
-- wrote. Whoever raises the epoch waits for the batch under way, which holds the row.
-- +goose StatementBegin
CREATE FUNCTION weir_begin(of_node text, of_epoch bigint, after_batch bigint, this_batch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE weir_node SET batch = this_batch WHERE node = of_node AND epoch = of_epoch AND batch = after_batch;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'epoch % of node % is over', of_epoch, of_node USING ERRCODE = 'WE001';
  END IF;
END $$;
-- +goose StatementEnd
