// The scripts, which scripts.mjs writes.

/** The scripts by their numbers in `wire.ts`, and their SHA-1s: with the flag, and without. */
export declare const scripts: string[];
export declare const sha1s: [string[], string[]];

/** A script by its number in `wire.ts`, with the flag that has the server lock only the script's own keys, or without. */
export declare function scriptOf(script: number, locking: boolean): string;
export declare function sha1Of(script: number, locking: boolean): string;
/** The script for several decisions. */
export declare function batchScript(locking: boolean): string;
