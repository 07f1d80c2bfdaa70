/*
 * request_digest.h - what is kept of a request: digests of it, by value
 */
#ifndef IDEM_REQUEST_DIGEST_H
#define IDEM_REQUEST_DIGEST_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/jsonb.h"

/* A request is a JSON value: a tree in memory, as canonical_json.c makes them. */
extern bytea *idem_request_digest(const JsonbValue *request);
extern bool idem_request_digest_equal(const bytea *a, const bytea *b);
extern List *idem_request_digest_differences(const bytea *stored, const JsonbValue *request);

#endif							/* IDEM_REQUEST_DIGEST_H */
