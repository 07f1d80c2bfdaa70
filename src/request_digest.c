/*
 * request_digest.c - what is kept of a request: digests of it, by value
 *
 * docs/request-digest.md defines the format.  It is stored in users' logs, so it
 * never changes: a second format would get a second version byte and both would
 * be understood for ever.
 *
 *	byte 0		format version, 1
 *	bytes 1-16	the first 128 bits of the SHA-256 of the encoded request
 *	then, for each top-level field in order, CRC-32C of its encoded name and
 *	CRC-32C of its encoded name and value, each 4 bytes, big-endian
 *
 * The 128 bits alone decide whether two requests are the same.  The check values
 * only serve to name the fields that differ.
 */
#include "postgres.h"

#include "canonical_json.h"
#include "compat.h"
#include "request_digest.h"

#include "common/sha2.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#define FORMAT_VERSION 1
#define WHOLE_BYTES 16
#define FIELD_BYTES 8
#define HEADER_BYTES (1 + WHOLE_BYTES)

/* a pair of an object, its key in UTF-8, for sorting by the key's bytes */
typedef struct EncodedPair
{
	char	   *key;
	int			key_length;
	const JsonbPair *pair;
} EncodedPair;

/*
 * Strings are digested in UTF-8, so that databases of different encodings agree.
 * What encoding a SQL_ASCII database's bytes are in nobody knows; they go as they are.
 */
static char *
to_utf8(const char *string, int length, int *utf8_length)
{
	char	   *utf8;

	*utf8_length = length;
	if (GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII)
		return (char *) string;
	utf8 = pg_server_to_any(string, length, PG_UTF8);
	if (utf8 != string)
		*utf8_length = strlen(utf8);
	return utf8;
}

static void
encode_bytes(StringInfo out, const char *bytes, int length)
{
	pq_sendint32(out, length);
	appendBinaryStringInfo(out, bytes, length);
}

static void
encode_string(StringInfo out, const char *string, int length)
{
	int			utf8_length;
	char	   *utf8 = to_utf8(string, length, &utf8_length);

	encode_bytes(out, utf8, utf8_length);
}

static int
compare_pairs(const void *a, const void *b)
{
	const EncodedPair *left = a;
	const EncodedPair *right = b;
	int			order = memcmp(left->key, right->key, Min(left->key_length, right->key_length));

	return order != 0 ? order : left->key_length - right->key_length;
}

/*
 * Returns an object's pairs by the bytes of their keys.  jsonb's own order
 * depends on the database's encoding.
 */
static EncodedPair *
sorted_pairs(const JsonbValue *object)
{
	int			npairs = object->val.object.nPairs;
	EncodedPair *pairs = palloc(sizeof(EncodedPair) * Max(npairs, 1));

	for (int i = 0; i < npairs; i++)
	{
		const JsonbPair *pair = &object->val.object.pairs[i];

		pairs[i].key = to_utf8(pair->key.val.string.val, pair->key.val.string.len, &pairs[i].key_length);
		pairs[i].pair = pair;
	}
	qsort(pairs, npairs, sizeof(EncodedPair), compare_pairs);
	return pairs;
}

static uint32
check_value(const char *bytes, size_t length)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, length);
	FIN_CRC32C(crc);
	return crc;
}

static void encode(StringInfo out, const JsonbValue *json);

/*
 * Encodes an object.  With `checks`, appends there the two check values of each
 * pair, in the order of the pairs.
 */
static void
encode_object(StringInfo out, const JsonbValue *object, StringInfo checks)
{
	int			npairs = object->val.object.nPairs;
	EncodedPair *pairs = sorted_pairs(object);

	appendStringInfoChar(out, '{');
	pq_sendint32(out, npairs);
	for (int i = 0; i < npairs; i++)
	{
		int			start = out->len;
		int			name_end;

		encode_bytes(out, pairs[i].key, pairs[i].key_length);
		name_end = out->len;
		encode(out, &pairs[i].pair->value);

		if (checks != NULL)
		{
			pq_sendint32(checks, check_value(out->data + start, name_end - start));
			pq_sendint32(checks, check_value(out->data + start, out->len - start));
		}
	}
	pfree(pairs);
}

static void
encode(StringInfo out, const JsonbValue *json)
{
	char	   *number;

	check_stack_depth();

	switch (json->type)
	{
		case jbvNull:
			appendStringInfoChar(out, 'n');
			break;
		case jbvBool:
			appendStringInfoChar(out, json->val.boolean ? 't' : 'f');
			break;
		case jbvNumeric:
			/* equal numbers have equal text here: no trailing zeros, no negative zero */
			number = numeric_normalize(json->val.numeric);
			appendStringInfoChar(out, '#');
			encode_bytes(out, number, strlen(number));
			break;
		case jbvString:
			appendStringInfoChar(out, '"');
			encode_string(out, json->val.string.val, json->val.string.len);
			break;
		case jbvArray:
			appendStringInfoChar(out, '[');
			pq_sendint32(out, json->val.array.nElems);
			for (int i = 0; i < json->val.array.nElems; i++)
				encode(out, &json->val.array.elems[i]);
			break;
		case jbvObject:
			encode_object(out, json, NULL);
			break;
		default:				/* the trees digested here have nothing else */
			elog(ERROR, "unexpected jsonb value type: %d", (int) json->type);
	}
}

static void
sha256(const char *bytes, size_t length, uint8 *digest)
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);

	if (context == NULL ||
		pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) bytes, length) < 0 ||
		idem_cryptohash_final(context, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute the SHA-256 of the request")));
	pg_cryptohash_free(context);
}

/*
 * Returns the digest of a request, in the caller's context.  One that is not an
 * object has no fields, so only the digest of the whole.
 */
bytea *
idem_request_digest(const JsonbValue *request)
{
	StringInfoData encoded;
	StringInfoData checks;
	uint8		whole[PG_SHA256_DIGEST_LENGTH];
	bytea	   *digest;
	char	   *out;

	initStringInfo(&encoded);
	initStringInfo(&checks);
	if (request->type == jbvObject)
		encode_object(&encoded, request, &checks);
	else
		encode(&encoded, request);
	sha256(encoded.data, encoded.len, whole);

	digest = palloc(VARHDRSZ + HEADER_BYTES + checks.len);
	SET_VARSIZE(digest, VARHDRSZ + HEADER_BYTES + checks.len);
	out = VARDATA(digest);
	out[0] = FORMAT_VERSION;
	memcpy(out + 1, whole, WHOLE_BYTES);
	memcpy(out + HEADER_BYTES, checks.data, checks.len);

	pfree(encoded.data);
	pfree(checks.data);
	return digest;
}

/*
 * Same request?
 */
bool
idem_request_digest_equal(const bytea *a, const bytea *b)
{
	return VARSIZE_ANY_EXHDR(a) >= HEADER_BYTES &&
		VARSIZE_ANY_EXHDR(b) >= HEADER_BYTES &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), HEADER_BYTES) == 0;
}

/*
 * Returns the names of the request's fields whose values differ from those of a
 * stored digest, as a list of new strings in ascending order.  A field that only
 * the stored request had cannot be named, so this extension's own functions give
 * all their fields every time.
 */
List *
idem_request_digest_differences(const bytea *stored, const JsonbValue *request)
{
	const char *theirs = VARDATA_ANY(stored) + HEADER_BYTES;
	int			ntheirs = ((int) VARSIZE_ANY_EXHDR(stored) - HEADER_BYTES) / FIELD_BYTES;
	const char *ours;
	EncodedPair *pairs;
	List	   *differences = NIL;

	if (request->type != jbvObject)
		return NIL;

	ours = VARDATA(idem_request_digest(request)) + HEADER_BYTES;
	pairs = sorted_pairs(request);
	for (int i = 0; i < request->val.object.nPairs; i++)
	{
		const JsonbValue *name = &pairs[i].pair->key;
		bool		found = false;

		for (int j = 0; j < ntheirs && !found; j++)
			found = memcmp(ours + i * FIELD_BYTES, theirs + j * FIELD_BYTES, FIELD_BYTES) == 0;
		if (!found)
			differences = lappend(differences, pnstrdup(name->val.string.val, name->val.string.len));
	}
	return differences;
}

IDEM_SQL_FUNCTION(idempotency_request_digest);

Datum
idempotency_request_digest(PG_FUNCTION_ARGS)
{
	JsonbValue	request;

	idem_canonical_json_from_jsonb(PG_GETARG_JSONB_P(0), &request);
	PG_RETURN_BYTEA_P(idem_request_digest(&request));
}
