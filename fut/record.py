"""The form of a record: what `fut.trial` makes, the store keeps and the tables are made of."""

from typing import Any

SCHEMA_VERSION = 1  # of the record's fields; a store holds records of one version
Record = dict[str, Any]  # JSON values only
