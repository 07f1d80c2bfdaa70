/*
 * guard_transitions.h - a trigger that holds a column to its state diagram
 */
#ifndef IDEM_GUARD_TRANSITIONS_H
#define IDEM_GUARD_TRANSITIONS_H

extern void idem_guard_transitions_init(void);

#endif							/* IDEM_GUARD_TRANSITIONS_H */
