/*
 * canonical_json.c - SQL values as JSON values that no session setting moves
 *
 * A request is compared by digests of its values, made perhaps years apart by
 * sessions with other settings.  to_jsonb() will not do: it shows a timestamptz
 * in the session's time zone and a float with the session's digits.  So the
 * types people have in keys are spelled here, and every other type is put
 * through its output function under fixed settings.
 *
 * JSON values here are trees in memory (no jbvBinary inside), allocated in the
 * caller's context.
 */
#include "postgres.h"

#include "canonical_json.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"

static void
set_string(JsonbValue *json, char *string, int length)
{
	json->type = jbvString;
	json->val.string.val = string;
	json->val.string.len = length;
}

void
idem_canonical_json_from_text(const text *value, JsonbValue *json)
{
	set_string(json, VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

/*
 * JSON has no NaN and no infinities; they become strings.
 */
void
idem_canonical_json_from_numeric(Numeric value, JsonbValue *json)
{
	if (numeric_is_nan(value) || numeric_is_inf(value))
	{
		char	   *name = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value)));

		set_string(json, name, strlen(name));
		return;
	}
	json->type = jbvNumeric;
	json->val.numeric = value;
}

/*
 * A float is the number that its shortest exact decimal spells; the cast to
 * numeric would cut it to 15 digits.
 */
static void
from_float_text(char *decimal, JsonbValue *json)
{
	Datum		number = DirectFunctionCall3(numeric_in, CStringGetDatum(decimal),
											 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));

	idem_canonical_json_from_numeric(DatumGetNumeric(number), json);
}

/*
 * Any type's own text, under the settings that pg_dump too fixes for the same
 * reason.
 */
static void
from_output_function(Datum value, Oid output_function, JsonbValue *json)
{
	static const char *const settings[][2] = {
		{"datestyle", "ISO, MDY"},
		{"intervalstyle", "postgres"},
		{"timezone", "UTC"},
		{"extra_float_digits", "3"},
		{"bytea_output", "hex"},
		{"lc_monetary", "C"},
	};
	int			nest_level = NewGUCNestLevel();
	char	   *output;

	for (int i = 0; i < (int) lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	output = OidOutputFunctionCall(output_function, value);
	AtEOXact_GUC(true, nest_level);

	set_string(json, output, strlen(output));
}

static void unpack_container(JsonbContainer *container, JsonbValue *json);

static void
unpack(JsonbValue *json)
{
	if (json->type == jbvBinary)
	{
		JsonbContainer *container = json->val.binary.data;

		unpack_container(container, json);
	}
}

/*
 * Makes a tree of a container.  A top-level scalar, which jsonb stores as an
 * array of one, becomes the scalar.
 */
static void
unpack_container(JsonbContainer *container, JsonbValue *json)
{
	JsonbIterator *iterator = JsonbIteratorInit(container);
	JsonbIteratorToken token;
	JsonbValue	item;
	int			i = 0;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();

	token = JsonbIteratorNext(&iterator, json, true);
	if (token == WJB_BEGIN_ARRAY)
		json->val.array.elems = palloc(sizeof(JsonbValue) * Max(json->val.array.nElems, 1));
	else
		json->val.object.pairs = palloc0(sizeof(JsonbPair) * Max(json->val.object.nPairs, 1));

	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM)
		{
			unpack(&item);
			json->val.array.elems[i++] = item;
		}
		else if (token == WJB_KEY)
			json->val.object.pairs[i].key = item;
		else if (token == WJB_VALUE)
		{
			unpack(&item);
			json->val.object.pairs[i++].value = item;
		}
	}

	if (json->type == jbvArray && json->val.array.rawScalar)
		*json = json->val.array.elems[0];
}

void
idem_canonical_json_from_jsonb(Jsonb *value, JsonbValue *json)
{
	unpack_container(&value->root, json);
}

/*
 * Makes the JSON value of a value.  base_type is its type below all domains,
 * output_function that type's.  By-reference parts may point into the value.
 */
void
idem_canonical_json_from_datum(Datum value, Oid base_type, Oid output_function, JsonbValue *json)
{
	char	   *buffer;

	switch (base_type)
	{
		case BOOLOID:
			json->type = jbvBool;
			json->val.boolean = DatumGetBool(value);
			break;
		case INT2OID:
			idem_canonical_json_from_numeric(int64_to_numeric(DatumGetInt16(value)), json);
			break;
		case INT4OID:
			idem_canonical_json_from_numeric(int64_to_numeric(DatumGetInt32(value)), json);
			break;
		case INT8OID:
			idem_canonical_json_from_numeric(int64_to_numeric(DatumGetInt64(value)), json);
			break;
		case NUMERICOID:
			idem_canonical_json_from_numeric(DatumGetNumeric(value), json);
			break;
		case FLOAT4OID:
			from_float_text(float_to_shortest_decimal(DatumGetFloat4(value)), json);
			break;
		case FLOAT8OID:
			from_float_text(double_to_shortest_decimal(DatumGetFloat8(value)), json);
			break;
		case TEXTOID:
		case VARCHAROID:
			idem_canonical_json_from_text(DatumGetTextPP(value), json);
			break;
		case BPCHAROID:
			{
				BpChar	   *padded = DatumGetBpCharPP(value);

				/* the blanks it is padded with mean nothing, so '=' says */
				set_string(json, VARDATA_ANY(padded), bpchartruelen(VARDATA_ANY(padded), VARSIZE_ANY_EXHDR(padded)));
			}
			break;
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			{
				const int	utc = 0;

				buffer = JsonEncodeDateTime(NULL, value, base_type, &utc);
				set_string(json, buffer, strlen(buffer));
			}
			break;
		case JSONBOID:
			idem_canonical_json_from_jsonb(DatumGetJsonbP(value), json);
			break;
		case UUIDOID:
			buffer = OidOutputFunctionCall(output_function, value);
			set_string(json, buffer, strlen(buffer));
			break;
		default:
			if (type_is_enum(base_type))
			{
				buffer = OidOutputFunctionCall(output_function, value);
				set_string(json, buffer, strlen(buffer));
			}
			else
				from_output_function(value, output_function, json);
			break;
	}
}

/*
 * Returns a tree as jsonb.  Pairs must be in jsonb's own order, by length and
 * then by bytes, as they are in what was unpacked from a jsonb.
 */
Jsonb *
idem_canonical_json_to_jsonb(const JsonbValue *json)
{
	return JsonbValueToJsonb((JsonbValue *) json);
}

/*
 * Returns the text that a type's input function reads back as the same value:
 * a string's contents, for anything else its JSON.
 */
char *
idem_canonical_json_to_text(const JsonbValue *json)
{
	Jsonb	   *jsonb;

	if (json->type == jbvString)
		return pnstrdup(json->val.string.val, json->val.string.len);
	jsonb = idem_canonical_json_to_jsonb(json);
	return JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
}
