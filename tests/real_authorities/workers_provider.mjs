// npm `@cloudflare/workers-oauth-provider` on `miniflare`: what Notion, Sentry and Cloudflare run. Parallel refreshes of
// one token all succeed, and all tokens but the last are dead.
// Environment: PACKAGES (the folder above node_modules), TTL (at least 60), UPSTREAM (the MCP server behind).
import { createRequire } from 'node:module';
import { readBody, serve } from './front.mjs';

const packages = createRequire(`${process.env.PACKAGES}/here.js`);
const { Miniflare } = packages('miniflare');
const { buildSync } = packages('esbuild');

let miniflare;
await serve(async (origin, seen) => {
  const built = buildSync({
    entryPoints: [new URL('worker.mjs', import.meta.url).pathname],
    nodePaths: [`${process.env.PACKAGES}/node_modules`],
    bundle: true, write: false, format: 'esm', platform: 'neutral', mainFields: ['module', 'main'],
    external: ['cloudflare:workers', 'node:*'],
  });
  miniflare = new Miniflare({
    modules: true, script: built.outputFiles[0].text, kvNamespaces: ['OAUTH_KV'], host: '127.0.0.1', port: 0,
    compatibilityDate: '2026-01-01', compatibilityFlags: ['nodejs_compat'],
    bindings: { ORIGIN: origin, TTL: process.env.TTL ?? '3600', UPSTREAM: process.env.UPSTREAM },
  });
  await miniflare.ready;
  return async (request, response) => {
    const body = await readBody(request);
    const { host, connection, 'content-length': length, 'transfer-encoding': coding, ...headers } = request.headers;
    const answer = await miniflare.dispatchFetch(origin + request.url, {
      method: request.method, headers, body: body.length ? body : undefined, redirect: 'manual',
    });
    const given = Buffer.from(await answer.arrayBuffer());
    const { 'content-encoding': encoding, 'content-length': size, 'transfer-encoding': chunked, ...kept } =
      Object.fromEntries(answer.headers);
    response.writeHead(answer.status, kept);
    response.end(given);
    const asked = new URLSearchParams(body.toString());
    const path = request.url.split('?')[0];
    if (path !== '/mcp') {
      const [grant, resource] = [asked.get('grant_type') ?? '', asked.get('resource') ?? ''];
      seen.push({ path, grant, resource, status: answer.status, error: '' });
    }
  };
}, () => miniflare.dispose());
