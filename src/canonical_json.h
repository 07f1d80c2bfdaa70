/*
 * canonical_json.h - SQL values as JSON values that no session setting moves
 */
#ifndef IDEM_CANONICAL_JSON_H
#define IDEM_CANONICAL_JSON_H

#include "postgres.h"

#include "utils/jsonb.h"

extern void idem_canonical_json_from_datum(Datum value, Oid base_type, Oid output_function, JsonbValue *json);
extern void idem_canonical_json_from_text(const text *value, JsonbValue *json);
extern void idem_canonical_json_from_numeric(Numeric value, JsonbValue *json);
extern void idem_canonical_json_from_jsonb(Jsonb *value, JsonbValue *json);
extern char *idem_canonical_json_to_text(const JsonbValue *json);
extern Jsonb *idem_canonical_json_to_jsonb(const JsonbValue *json);

#endif							/* IDEM_CANONICAL_JSON_H */
