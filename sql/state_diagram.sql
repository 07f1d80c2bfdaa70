-- check_state_diagram: what is read, what is refused, and what is only warned of.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL

-- a whole one has nothing to say about it
SELECT * FROM idempotency.check_state_diagram('stateDiagram-v2
    [*] --> WAIT_PAY
    WAIT_PAY --> PAID : pay
    WAIT_PAY --> CANCELLED : cancel
    PAID --> [*]
    CANCELLED --> [*]');
-- with all that is for the eye alone: none of it is a state or an arrow
SELECT * FROM idempotency.check_state_diagram('---
title: orders --> here
---

%% a comment, and one that Mermaid takes for one
# A --> B
stateDiagram-v2
	direction LR
	hide empty description
	scale 350 width
	accTitle: orders
	accDescr: what becomes --> of them
	accDescr {
		A --> B
	}
	classDef bad fill:#f00,color:white
	class A bad
	style A fill:#fff
	[*] --> A:::bad %% a comment behind an arrow
	A : a description
	A:::bad --> B
	note right of A : A --> C
	note left of B
		B --> C
	END NOTE
	note "A --> C" as N1
	state B
	B
	B --> [*] : done');
SELECT count(*) FROM idempotency.check_state_diagram('stateDiagram
[*]-->A
A-->[*]');
SELECT count(*) FROM idempotency.check_state_diagram(E'stateDiagram-v2\r\n[*] --> A\r\nA --> [*] : end \r\n');
SELECT count(*) FROM idempotency.check_state_diagram(E'[*] --> A\nA --> [*]');
-- names as people have them
SELECT * FROM idempotency.check_state_diagram('[*] --> s1
s1 --> 支付 : 付款
支付 --> Rückgabe_ß : zurück
Rückgabe_ß --> 1st/A.b(c) : x: y
1st/A.b(c) --> [*]
STATE "waiting for payment: day 1-3 {of 5}" AS s1', ARRAY['waiting for payment: day 1-3 {of 5}', '支付', 'Rückgabe_ß', '1st/A.b(c)']);
-- words of the syntax are only words where they stand alone
SELECT * FROM idempotency.check_state_diagram('[*] --> states
states --> Note2 : note
Note2 --> classy : class
classy --> hide
hide --> end
end --> as
as --> direction
direction --> [*]');

-- syntax errors: each with its line and column, all of them at once; a column is a character
SELECT * FROM idempotency.check_state_diagram('stateDiagram-v2 x
[*] --> A B
支付 -> A
A --> B-C
A ---> B
A --> 
--> B
[*]
[*] --> [*]
"x" --> A
A --> "x"
state "x
state " " as s
state "x" s
state "x" as
state "x" as a b
state "x" as a"b
state "one" as dup
state "two" as dup
state C {
state D <<choice>>
state E [[fork]]
A --> <<end>>
[H] --> A
A --> [H]
A --> class
default --> A
class --> A
note --> A
note above A : x
note left A : x
note left of A x
note left of
A --> B : a; b
A --> B : a::b
A --> B : a:
A --> B : a %% b
A::: --> B
A --> B :: c
A { B
--
A --> B : go direction LR
stateDiagram-v2
A; --> B
A --> B :
A :
A : a;b
class
class A
style A
classDef k
class <<x>> k
style A --> B
scale
scale x
scale 3
scale 3 width x
accTitle
accDescr:
click A "x" "y"
hide');
-- what is not closed
SELECT * FROM idempotency.check_state_diagram('[*] --> A
note left of A
A --> [*]');
SELECT * FROM idempotency.check_state_diagram('---
title: x');
-- two ids of one state
SELECT * FROM idempotency.check_state_diagram('[*] --> s
state "A" as s
s --> A
A --> [*]');

-- no beginning is an error; what no row can come to, or leave, and what cannot be fired, are warnings
SELECT * FROM idempotency.check_state_diagram('');
SELECT * FROM idempotency.check_state_diagram('A --> B
B --> [*]');
SELECT * FROM idempotency.check_state_diagram('[*] --> A
A --> B : go
A --> C : go
B --> B : again
B --> B
C --> A : go
D --> E
E --> D
A --> B : go
F');
-- one that leads back to where it comes from can be left
SELECT * FROM idempotency.check_state_diagram('[*] --> A
A --> B
B --> A');

-- labels of an enum
CREATE TYPE order_state AS ENUM ('WAIT_PAY', 'PAID', 'LOST');
SELECT * FROM idempotency.check_state_diagram('[*] --> WAIT_PAY
WAIT_PAY --> PAYED
PAYED --> [*]', enum_range(NULL::order_state)::text[]);
SELECT * FROM idempotency.check_state_diagram('[*] --> WAIT_PAY
WAIT_PAY --> PAID
state "paid for" as PAID
PAID --> [*]', '{WAIT_PAY,PAID}');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.check_state_diagram('[*] --> A', '{A,NULL}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.check_state_diagram(NULL)$$);

-- a large one
SELECT count(*) FROM idempotency.check_state_diagram('[*] --> s1' || E'\n' || (
	SELECT string_agg(format('s%s --> s%s : next', i, i % 500 + 1), E'\n') FROM generate_series(1, 500) i));

DROP TYPE order_state;
DROP EXTENSION idempotency;
