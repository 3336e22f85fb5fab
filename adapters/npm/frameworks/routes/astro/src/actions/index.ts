import { defineAction } from "astro:actions";
import { ran } from "../../gate";

export const server = { buy: defineAction({ accept: "form", handler: () => ran("action") }) };
