// Bundles the edge functions as Netlify's build does.

import path from "node:path";
import { bundle } from "@netlify/edge-bundler";

const { functions, manifest } = await bundle([path.resolve("netlify/edge-functions")], path.resolve("dist"), [], { basePath: path.resolve(".") });
if (functions.length !== 1 || manifest?.bundles.length !== 1) throw new Error("no bundle");
