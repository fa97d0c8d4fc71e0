// What every authorization server of these tests has in front: one port, what its token endpoint was asked and how it
// answered (`GET /_seen`), and its address as the first line on the standard output.
import http from 'node:http';

export function sendJson(response, value, status = 200) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

export async function readBody(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

// Listens, then has `make(origin, seen)` build what answers: an async function of a request and its response. At the end
// `close` is awaited.
export async function serve(make, close = async () => {}) {
  const seen = [];
  let handle;
  const server = http.createServer(async (request, response) => {
    try {
      if (request.url === '/_seen') sendJson(response, seen);
      else await handle(request, response);
    } catch (error) {
      console.error(error);
      if (!response.headersSent) sendJson(response, { error: 'server_error' }, 500);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  handle = await make(origin, seen);
  console.log(origin);
  // The tests hold our standard input: when they are gone, so are we.
  process.stdin.on('end', () => close().finally(() => process.exit(0))).resume();
}
