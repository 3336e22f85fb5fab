// What a balance needs of the scripts, which scripts.mjs writes.

/** The script of policies with a balance, made of the general one. */
export declare function withBalance(script: string): string;
/** Its SHA-1s: with the flag of `built.d.ts`, and without. */
export declare const sha1s: readonly [string, string];
