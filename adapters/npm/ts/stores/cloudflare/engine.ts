import * as glue from "#object/glue";
import module from "#object/module";
import { start } from "../../engine.js";

/** The WebAssembly of the limiter and of the object. */
export const engine = start(module, glue);
