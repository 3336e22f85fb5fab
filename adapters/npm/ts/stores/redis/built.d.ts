// The scripts, which scripts.mjs writes.

/** The general script and the plain one, by their numbers in `wire.ts`, and the SHA-1s of all: with the flag, and without. */
export declare const scripts: string[];
export declare const sha1s: [string[], string[]];

/** The script for states with loans, which `loans.ts` adds to the scripts. */
export declare function lendScript(): string;
/** A script by its number in `wire.ts`, with the flag that has the server lock only the script's own keys, or without. */
export declare function scriptOf(script: number, locking: boolean): string;
export declare function sha1Of(script: number, locking: boolean): string;
/** The script for several decisions. */
export declare function batchScript(locking: boolean): string;
