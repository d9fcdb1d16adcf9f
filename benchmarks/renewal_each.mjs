// One compare-and-swap for each claim through a pool: the reference of renewal_each.py, from Node.
// node renewal_each.mjs FOLDER PORT DATABASE COUNT WIDTH; `pg` is in FOLDER/node_modules. Prints {"seconds", "renewed"}.
import { createRequire } from "node:module";

const [folder, port, database, count, width] = process.argv.slice(2);
const { Pool } = createRequire(`${folder}/`)("pg");
const pool = new Pool({ host: "127.0.0.1", port: Number(port), database, user: "weft", max: Number(width) });
const swap = {
  name: "swap",
  text: `UPDATE weft_claims SET expires_at = (SELECT heartbeat_at + 30000 FROM weft_engines WHERE id = $1)
         WHERE workflow_id = $2 AND engine_id = $1 AND epoch = $3`,
};
const { rows } = await pool.query("SELECT workflow_id, engine_id, epoch FROM weft_claims LIMIT $1", [Number(count)]);
await Promise.all(Array.from({ length: Number(width) }, () => pool.query("SELECT pg_sleep(0.05)")));

let next = 0;
let renewed = 0;
async function work() {
  while (next < rows.length) {
    const claim = rows[next++];
    const done = await pool.query({ ...swap, values: [claim.engine_id, claim.workflow_id, claim.epoch] });
    renewed += done.rowCount;
  }
}
const begun = process.hrtime.bigint();
await Promise.all(Array.from({ length: Number(width) }, work));
const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
await pool.end();
console.log(JSON.stringify({ seconds, renewed }));
