/** The command ran and found failures, which it has printed. */
export class Failed extends Error {}

/** The command line or an input is wrong. The message says why. */
export class Usage extends Error {}
