// npm `oidc-provider`: rotates refresh tokens and revokes the whole grant when one comes back a second time.
// Environment: PACKAGES (the folder above node_modules), TTL (seconds that an access token lives), FORMAT (of access
// tokens: jwt or opaque).
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { sendJson, serve } from './front.mjs';

const packages = createRequire(`${process.env.PACKAGES}/here.js`);
const { default: Provider, errors } = await import(pathToFileURL(packages.resolve('oidc-provider')));
const TTL = Number(process.env.TTL ?? 3600);
const DAY = 86400;
const SCOPES = 'mcp:read mcp:write';

// As people meet it: a form to send off, with a session in cookies. A browser with scripts does it by itself.
const shown = (form) =>
  `<!doctype html><title>Sign in</title>${form}<script>document.forms[0].submit()</script>`;
const page = (action) => shown(`<form method="post" action="${action}"><button>Allow</button></form>`);

await serve(async (origin, seen) => {
  const grants = new Set();
  const provider = new Provider(origin, {
    // Resource scopes must not be listed here, or the consent step loops.
    scopes: ['openid', 'offline_access'],
    pkce: { required: () => true },
    cookies: { keys: ['tests'] },
    ttl: { AccessToken: TTL, DeviceCode: 600, Grant: DAY, IdToken: 600, Interaction: 600, RefreshToken: DAY, Session: DAY },
    rotateRefreshToken: () => true,
    issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
    // Roles, as administrators give them: `alice` leads, everybody else is a member.
    extraTokenClaims: (ctx, token) => ({ groups: [token.accountId === 'alice' ? 'leads' : 'members'] }),
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      deviceFlow: {
        enabled: true,
        userCodeInputSource: (ctx, form) => { ctx.body = shown(form); },
        userCodeConfirmSource: (ctx, form) => { ctx.body = shown(form); },
        successSource: (ctx) => { ctx.body = '<!doctype html><title>Done</title>'; },
      },
      revocation: { enabled: true },
      introspection: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        defaultResource: () => undefined,
        getResourceServerInfo: (ctx, resource) => {
          if (!/^http:\/\/127\.0\.0\.1:\d+\/mcp$/.test(resource)) throw new errors.InvalidTarget();
          return { scope: SCOPES, audience: resource, accessTokenFormat: process.env.FORMAT ?? 'jwt', accessTokenTTL: TTL };
        },
      },
    },
    interactions: { url: (ctx, interaction) => `/auto/${interaction.uid}` },
    loadExistingGrant: async (ctx) => {
      const grant = new provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
      grant.addOIDCScope('openid offline_access');
      grant.addResourceScope(ctx.oidc.params.resource, SCOPES);
      grants.add(await grant.save());
      return grant;
    },
  });
  provider.use(async (ctx, next) => {
    await next();
    const { grant_type: grant = '', resource = '' } = ctx.oidc?.params ?? {};
    seen.push({ path: ctx.path, grant, resource, status: ctx.status, error: ctx.body?.error ?? '' });
  });
  const answer = provider.callback();
  return async (request, response) => {
    const path = request.url.split('?')[0];
    if (path === '/_end_grants') {
      for (const id of grants) await provider.RefreshToken.adapter.revokeByGrantId(id);
      return sendJson(response, grants.size);
    }
    if (!path.startsWith('/auto/')) return answer(request, response);
    if (request.method === 'GET') {
      response.writeHead(200, { 'content-type': 'text/html' });
      return response.end(page(path));
    }
    const details = await provider.interactionDetails(request, response);
    const login = { accountId: details.params.login_hint || 'alice' };
    const decided = { login, consent: {} };
    return provider.interactionFinished(request, response, decided, { mergeWithLastSubmission: true });
  };
});
