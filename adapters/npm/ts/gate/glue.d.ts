// What the WebAssembly that reads TOML offers: build.sh writes its glue.

/**
 * Reads a text in TOML. Returns JSON: a node, or a mistake if the text is wrong. A node is `[at, kind, value]`, where the kind is 0 for
 * a number, a flag or a date, as a string, 1 for a text, 2 for a list of nodes, and 3 for a table, which is a list of pairs of a name
 * and a node. A mistake is `{ "at": at, "what": text }`. `at` is an index of the text.
 */
export declare function read(text: string): string;
export declare function start(exports: WebAssembly.Exports): void;
