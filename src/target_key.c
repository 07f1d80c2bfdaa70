/*
 * target_key.c - which row of a user's table a key names
 *
 * A key is a value of a one-column primary key or a JSON object of the columns
 * of any unique key.  Whatever form it comes in, it becomes values of the key
 * columns' types, read by the types' own input functions, and the JSON object of
 * these values, by which requests are compared.
 */
#include "postgres.h"

#include "canonical_json.h"
#include "compat.h"
#include "errors.h"
#include "target.h"

#include "catalog/pg_type.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

static char *
list_columns(const TargetKey *key)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&names, "%s%s", i > 0 ? ", " : "", quote_identifier(key->columns[i].name));
	return names.data;
}

static bool
names_rows(const TargetKey *key)
{
	return key->refusal == NULL && key->unnamable == NULL;
}

/* For the hint of an error: the keys that would do. */
static char *
list_usable_keys(const TargetTable *table)
{
	StringInfoData keys;

	initStringInfo(&keys);
	for (int i = 0; i < table->nkeys; i++)
	{
		if (names_rows(table->keys[i]))
			appendStringInfo(&keys, "%s(%s)", keys.len > 0 ? ", " : "", list_columns(table->keys[i]));
	}
	return keys.len > 0 ? psprintf("Unique keys that can be used: %s.", keys.data) :
		"Add a primary key or a unique constraint that is not deferrable.";
}

static void
refuse_null_key(const TargetKeyColumn *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("key column \"%s\" must not be NULL", column->name),
			 errhint("A NULL is equal to nothing, so it cannot name a row.")));
}

static Datum
value_from_string(const TargetKeyColumn *column, char *string)
{
	/* the one type whose input function cuts what it reads */
	if (column->base_type == NAMEOID && strlen(string) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("value for key column \"%s\" is longer than type name can hold", column->name),
				 errhint("Pass at most %d bytes.", NAMEDATALEN - 1)));

	/* no type modifier: a numeric(10,2) would round 1.234 to the key of another row */
	return OidInputFunctionCall(column->input_function, string, column->input_parameter, -1);
}

static bool
is_float(Oid type)
{
	return type == FLOAT4OID || type == FLOAT8OID;
}

/*
 * Reads a number as a value of the key column.  Its text is without trailing
 * zeros: an integer column reads 7.00 as 7, and refuses 7.5.  A float column may
 * have no such number, and would take the next one, another row's.
 */
static Datum
value_from_number(const TargetKeyColumn *column, Numeric number)
{
	Datum		value = value_from_string(column, numeric_normalize(number));
	JsonbValue	read;

	if (!is_float(column->base_type))
		return value;
	idem_canonical_json_from_datum(value, column->base_type, column->output_function, &read);
	if (read.type != jbvNumeric ||
		DatumGetInt32(DirectFunctionCall2(numeric_cmp, NumericGetDatum(read.val.numeric), NumericGetDatum(number))) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("key column \"%s\" of type %s has no value %s", column->name,
						format_type_be(column->type), numeric_normalize(number)),
				 errhint("Cast the key to %s where it is made.", format_type_be(column->type))));
	return value;
}

static Datum
value_from_integer(const TargetKeyColumn *column, int64 value)
{
	switch (column->base_type)
	{
		case INT8OID:
			return Int64GetDatum(value);
		case INT4OID:
			if (value >= PG_INT32_MIN && value <= PG_INT32_MAX)
				return Int32GetDatum((int32) value);
			break;
		case INT2OID:
			if (value >= PG_INT16_MIN && value <= PG_INT16_MAX)
				return Int16GetDatum((int16) value);
			break;
		case NUMERICOID:
			return NumericGetDatum(int64_to_numeric(value));
	}
	/* let the type say that it is out of range, or read it its own way */
	return value_from_number(column, int64_to_numeric(value));
}

/* A float as the number that its shortest exact decimal spells, whatever digits the session prints. */
static Datum
value_from_float(const TargetKeyColumn *column, Datum value, Oid type)
{
	JsonbValue	number;

	idem_canonical_json_from_datum(value, type, InvalidOid, &number);
	if (number.type != jbvNumeric)
		return value_from_string(column, pnstrdup(number.val.string.val, number.val.string.len));
	return value_from_number(column, number.val.numeric);
}

/* Only casts that keep the value: one that rounds would name another row. */
static Datum
value_by_cast(const TargetKeyColumn *column, Datum value, Oid type)
{
	Oid			cast;
	CoercionPathType path = find_coercion_pathway(column->base_type, type, COERCION_IMPLICIT, &cast);
	Oid			output_function;
	bool		is_varlena;

	if (path == COERCION_PATH_RELABELTYPE)
		return value;
	if (path == COERCION_PATH_FUNC && get_func_nargs(cast) == 1 && column->base_type != NAMEOID)
		return OidFunctionCall1(cast, value);
	if (TypeCategory(type) == TYPCATEGORY_STRING)
	{
		getTypeOutputInfo(type, &output_function, &is_varlena);
		return value_from_string(column, OidOutputFunctionCall(output_function, value));
	}

	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("key column \"%s\" is of type %s, but its value is of type %s",
					column->name, format_type_be(column->type), format_type_be(type)),
			 errhint("Cast the value to %s.", format_type_be(column->type))));
	return (Datum) 0;			/* not reached; for compilers that do not know */
}

static Datum
key_value(const TargetKeyColumn *column, Datum value, Oid type)
{
	Oid			base_type = getBaseType(type);

	if (base_type == column->base_type)
		return value;
	switch (base_type)
	{
		case INT2OID:
			return value_from_integer(column, DatumGetInt16(value));
		case INT4OID:
			return value_from_integer(column, DatumGetInt32(value));
		case INT8OID:
			return value_from_integer(column, DatumGetInt64(value));
		case TEXTOID:
			return value_from_string(column, TextDatumGetCString(value));
		case NUMERICOID:
		case FLOAT4OID:
		case FLOAT8OID:
			if (TypeCategory(column->base_type) != TYPCATEGORY_NUMERIC)
				return value_by_cast(column, value, base_type);
			return base_type == NUMERICOID ?
				value_from_number(column, DatumGetNumeric(value)) : value_from_float(column, value, base_type);
		default:
			return value_by_cast(column, value, base_type);
	}
}

/* Builds the JSON object of a row's key; pairs in jsonb's order. */
static int
compare_jsonb_keys(const void *a, const void *b)
{
	const JsonbValue *left = &((const JsonbPair *) a)->key;
	const JsonbValue *right = &((const JsonbPair *) b)->key;

	if (left->val.string.len != right->val.string.len)
		return left->val.string.len - right->val.string.len;
	return memcmp(left->val.string.val, right->val.string.val, left->val.string.len);
}

static void
set_key_json(TargetRow *row)
{
	const TargetKey *key = row->key;
	JsonbPair  *pairs = palloc0(sizeof(JsonbPair) * key->ncolumns);

	for (int i = 0; i < key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &key->columns[i];

		pairs[i].key.type = jbvString;
		pairs[i].key.val.string.val = column->name;
		pairs[i].key.val.string.len = strlen(column->name);
		idem_canonical_json_from_datum(row->values[i], column->base_type, column->output_function, &pairs[i].value);
	}
	qsort(pairs, key->ncolumns, sizeof(JsonbPair), compare_jsonb_keys);
	row->json.type = jbvObject;
	row->json.val.object.nPairs = key->ncolumns;
	row->json.val.object.pairs = pairs;
}

static const JsonbValue *
find_json_member(const JsonbValue *object, const char *name)
{
	int			length = strlen(name);

	for (int i = 0; i < object->val.object.nPairs; i++)
	{
		const JsonbPair *pair = &object->val.object.pairs[i];

		if (pair->key.val.string.len == length && memcmp(pair->key.val.string.val, name, length) == 0)
			return &pair->value;
	}
	return NULL;
}

static bool
key_has_columns_of(const TargetKey *key, const JsonbValue *object)
{
	if (key->ncolumns != object->val.object.nPairs)
		return false;
	for (int i = 0; i < key->ncolumns; i++)
	{
		if (find_json_member(object, key->columns[i].name) == NULL)
			return false;
	}
	return true;
}

static void
read_json_members(const TargetKey *key, const JsonbValue *object, TargetRow *row)
{
	row->key = key;
	for (int i = 0; i < key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &key->columns[i];
		const JsonbValue *member = find_json_member(object, column->name);

		if (column->base_type == JSONBOID)
			row->values[i] = JsonbPGetDatum(idem_canonical_json_to_jsonb(member));
		else if (member->type == jbvNull)
			refuse_null_key(column);
		else if (member->type == jbvNumeric && TypeCategory(column->base_type) == TYPCATEGORY_NUMERIC)
			row->values[i] = value_from_number(column, member->val.numeric);
		else
			row->values[i] = value_from_string(column, idem_canonical_json_to_text(member));
	}
	set_key_json(row);
}

static void
refuse_json_key(const Target *target, const TargetKey *refused)
{
	if (refused != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("unique key \"%s\" of table \"%s\" cannot name a row",
						refused->name, RelationGetRelationName(target->relation)),
				 errdetail("The key %s.", refused->refusal ? refused->refusal : refused->unnamable),
				 errhint("%s", list_usable_keys(target->table))));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
			 errmsg("table \"%s\" has no unique key of exactly the columns given",
					RelationGetRelationName(target->relation)),
			 errhint("%s", list_usable_keys(target->table))));
}

static void
read_json_key(const Target *target, Jsonb *json, TargetRow *row)
{
	JsonbValue	object;
	const TargetKey *refused = NULL;

	idem_canonical_json_from_jsonb(json, &object);
	if (object.type != jbvObject)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a key given as jsonb must be an object that names columns"),
				 errhint("Write it as {\"column\": value, ...}.")));

	for (int i = 0; i < target->table->nkeys; i++)
	{
		const TargetKey *key = target->table->keys[i];

		if (!key_has_columns_of(key, &object))
			continue;
		if (names_rows(key))
		{
			read_json_members(key, &object, row);
			return;
		}
		refused = key;
	}
	refuse_json_key(target, refused);
}

static void
refuse_scalar_key(const Target *target)
{
	const TargetKey *primary = target->table->primary;

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
			 primary == NULL ?
			 errmsg("table \"%s\" has no primary key", RelationGetRelationName(target->relation)) :
			 errmsg("the primary key of table \"%s\" has %d columns",
					RelationGetRelationName(target->relation), primary->ncolumns),
			 errdetail("A single value names a row by a primary key of one column."),
			 errhint("Pass the key as jsonb: {\"column\": value, ...}. %s", list_usable_keys(target->table))));
}

/*
 * Is it meant as an object of columns?  Then it must say so by its type, since a
 * text key may look like one.
 */
static void
refuse_object_as_text(const TargetKeyColumn *column, const char *string)
{
	if (string[strspn(string, " \t\r\n")] != '{')
		return;
	switch (TypeCategory(column->base_type))
	{
		case TYPCATEGORY_BOOLEAN:
		case TYPCATEGORY_DATETIME:
		case TYPCATEGORY_NUMERIC:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					 errmsg("invalid value for key column \"%s\" of type %s: \"%s\"",
							column->name, format_type_be(column->type), string),
					 errhint("To name columns, cast it: '...'::jsonb.")));
	}
}

static void
read_text_key(const Target *target, char *string, TargetRow *row)
{
	const TargetKey *primary = target->table->primary;

	if (primary != NULL && primary->ncolumns == 1)
	{
		refuse_object_as_text(&primary->columns[0], string);
		row->key = primary;
		row->values[0] = value_from_string(&primary->columns[0], string);
		set_key_json(row);
	}
	else if (string[strspn(string, " \t\r\n")] == '{')
		read_json_key(target, DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(string))), row);
	else
		refuse_scalar_key(target);
}

/*
 * Finds out which row a key names: a value of a one-column primary key, or an
 * object of the columns of any unique key.  Text (and so a parameter of unknown
 * type) is read by the key column's own input function; where the primary key is
 * not of one column it is read as jsonb.
 *
 * Raises 22004 for NULL, 42P10 where no unique key fits, 42804 for a value that
 * cannot be of the column's type, and what the type's input function raises.
 * The values belong to the current memory context.
 */
void
idem_target_read_key(const Target *target, Datum key, Oid key_type, TargetRow *row)
{
	const TargetKey *primary = target->table->primary;

	row->target = target;
	if (key_type == JSONBOID)
		read_json_key(target, DatumGetJsonbP(key), row);
	else if (key_type == TEXTOID)
		read_text_key(target, TextDatumGetCString(key), row);
	else if (primary != NULL && primary->ncolumns == 1)
	{
		row->key = primary;
		row->values[0] = key_value(&primary->columns[0], key, key_type);
		set_key_json(row);
	}
	else
		refuse_scalar_key(target);
}

/* Are equal values of this column always the same JSON value? */
static bool
has_one_form(const TargetKeyColumn *column)
{
	switch (column->base_type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case UUIDOID:
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case JSONBOID:
			return true;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
			return get_collation_isdeterministic(column->collation);
		default:
			return type_is_enum(column->base_type);
	}
}

/*
 * Reads a key as it was logged, if it could be equal to this row's key and yet be
 * written in another form.  Returns false if not.
 */
bool
idem_target_read_logged_key(const TargetRow *row, Jsonb *logged, TargetRow *logged_row)
{
	JsonbValue	object;
	bool		one_form = true;

	for (int i = 0; i < row->key->ncolumns; i++)
		one_form &= has_one_form(&row->key->columns[i]);
	if (one_form)
		return false;

	idem_canonical_json_from_jsonb(logged, &object);
	if (object.type != jbvObject || !key_has_columns_of(row->key, &object))
		return false;
	logged_row->target = row->target;
	read_json_members(row->key, &object, logged_row);
	return true;
}

/*
 * Do two rows of one key have the same key, by the index's own equality?
 */
bool
idem_target_same_key(const TargetRow *a, const TargetRow *b)
{
	Assert(a->key == b->key);
	for (int i = 0; i < a->key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &a->key->columns[i];

		if (!DatumGetBool(OidFunctionCall2Coll(get_opcode(column->equality), column->collation,
											   a->values[i], b->values[i])))
			return false;
	}
	return true;
}
