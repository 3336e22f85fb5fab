// Serves Netlify's blobs from a folder of its own:
//
//   node blobs-server.mjs
//
// It is the BlobsServer of @netlify/blobs with what that lacks and Netlify has: an ETag with every value, and one that
// changes with every write; conditional writes that nothing comes between. Its address is printed; a line on standard input
// is answered with the number of requests so far; it ends when standard input does.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import { BlobsServer } from "@netlify/blobs/server";

class Blobs extends BlobsServer {
  requests = 0;
  #last = Promise.resolve();

  handleRequest(request) {
    this.requests += 1;
    const answer = this.#last.then(() => super.handleRequest(request));
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  async get(request) {
    const response = await super.get(request);
    const { dataPath } = this.getLocalPaths(new URL(request.url, this.address));
    if (response.status === 200 && dataPath) response.headers.set("etag", await BlobsServer.generateETag(dataPath));
    return response;
  }

  // Its ETags are of the millisecond.
  async put(request) {
    await setTimeout(2);
    return super.put(request);
  }
}

const directory = mkdtempSync(path.join(tmpdir(), "tollgate-blobs-"));
const server = new Blobs({ directory, token: "conformance" });
const { port } = await server.start();
console.log(`http://127.0.0.1:${port}`);

for await (const _ of createInterface({ input: process.stdin })) console.log(server.requests);
await server.stop();
rmSync(directory, { recursive: true, force: true });
process.exit(0);
