// mermaid.mjs - what Mermaid's own parser makes of state diagrams
//
// Reads a JSON array of texts, and writes one of {error} or {states: {id: [descriptions]}, arrows: [[from, to, event]]},
// where "*" is the beginning and the end. Its parser wants a document, which jsdom gives it.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.argv[2] + '/');
const { JSDOM } = require('jsdom');
const { window } = new JSDOM('');
globalThis.window = window;
globalThis.document = window.document;

const { default: mermaid } = await import(pathToFileURL(require.resolve('mermaid')).href);

// its parsers are registered by the first call
await mermaid.parse('stateDiagram-v2\n[*] --> A');

async function read(text) {
	try {
		await mermaid.parse(text);
		const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
		const end = (id) => (id === 'root_start' || id === 'root_end' ? '*' : id);
		const states = {};

		for (const [id, state] of db.getStates()) {
			if (end(id) !== '*') {
				states[id] = state.descriptions;
			}
		}
		return { states, arrows: db.getRelations().map((r) => [end(r.id1), end(r.id2), r.relationTitle ?? '']) };
	} catch (error) {
		return { error: String(error.message ?? error).split('\n')[0] };
	}
}

const answers = [];
for (const text of JSON.parse(readFileSync(0, 'utf8'))) {
	answers.push(await read(text));
}
process.stdout.write(JSON.stringify(answers));
