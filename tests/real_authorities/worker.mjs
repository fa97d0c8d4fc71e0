// The worker: `@cloudflare/workers-oauth-provider` in front of an MCP server of somebody else's.
import { OAuthProvider } from '@cloudflare/workers-oauth-provider';

const forward = {
  // A request with a good token. The server behind never sees it.
  async fetch(request, env) {
    const headers = new Headers(request.headers);
    headers.delete('authorization');
    headers.delete('host');
    const body = request.method === 'GET' ? undefined : await request.arrayBuffer();
    return fetch(env.UPSTREAM, { method: request.method, headers, body, redirect: 'manual' });
  },
};

const pages = {
  async fetch(request, env) {
    const url = new URL(request.url);
    if (url.pathname === '/_end_grants') {
      const { items } = await env.OAUTH_PROVIDER.listUserGrants('alice');
      for (const grant of items) await env.OAUTH_PROVIDER.revokeGrant(grant.id, 'alice');
      return Response.json(items.length);
    }
    if (url.pathname !== '/authorize') return new Response('not here', { status: 404 });
    if (request.method === 'GET') {
      const page =
        '<!doctype html><title>Sign in</title><form method="post"><button>Allow</button></form>' +
        '<script>document.forms[0].submit()</script>';
      return new Response(page, { headers: { 'content-type': 'text/html' } });
    }
    const asked = await env.OAUTH_PROVIDER.parseAuthRequest(new Request(request.url));
    const { redirectTo } = await env.OAUTH_PROVIDER.completeAuthorization({
      request: asked, userId: 'alice', scope: asked.scope, metadata: {}, props: {},
    });
    return new Response(null, { status: 302, headers: { location: redirectTo } });
  },
};

export default {
  fetch(request, env, ctx) {
    const provider = new OAuthProvider({
      apiRoute: '/mcp',
      apiHandler: forward,
      defaultHandler: pages,
      authorizeEndpoint: '/authorize',
      tokenEndpoint: '/token',
      clientRegistrationEndpoint: '/register',
      accessTokenTTL: Number(env.TTL),
      resourceMetadata: { resource: `${env.ORIGIN}/mcp`, scopes_supported: ['mcp:read'] },
    });
    return provider.fetch(request, env, ctx);
  },
};
