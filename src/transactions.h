/*
 * transactions.h - other transactions: waiting for their end, and what they committed
 */
#ifndef IDEM_TRANSACTIONS_H
#define IDEM_TRANSACTIONS_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern bool idem_transactions_ask_for_end(TransactionId xid, TimestampTz until);
extern bool idem_transactions_take_turn(void (*action) (void *), void *argument, TimestampTz started);
extern void idem_transactions_flush_commit(TransactionId xid);

#endif							/* IDEM_TRANSACTIONS_H */
