-- KEYS: the dimension's loans. ARGV: the numbers, packed; the gateway's name.
--
-- A loan may be spent at any moment until it expires, so it is charged as if all of it were spent then: its slot leaves a
-- span after the expiry, a fixed bucket ends it, and a token bucket does not drain it before.
local a, gateway, key, at = ARGV[1], ARGV[2], KEYS[1], nil
local now, life, number, share, qrule, trule
now, life, number, share, qrule, trule, at = struct.unpack('<dddddd', a)
now = clock(now)
local bq, bt = {}, {}
bq.most, bq.ten, bq.rate, bt.most, bt.ten, bt.rate, at = struct.unpack('<dddddd', a, at)
local conc, qdebt, tdebt, qneed, qwant, tneed, twant, used, wanted, backs
conc, qdebt, tdebt, qneed, qwant, tneed, twant, used, wanted, backs, at = struct.unpack('<dddddddddd', a, at)

local qname, tname = 'r' .. qrule, 'm' .. trule
local s = redis.call('HMGET', key, qname, 'R', tname, 'M', 'c', 'x')
local gateways = s[5] and cmsgpack.unpack(s[5]) or {}
local mine = gateways[gateway]
if mine and number > 0 and mine[3] == number and mine[2] > now then return mine[4] end
local qps = gauge(key, 'R', window(key, qname, qrule, QPS, QPS / 100, s[1], now), s[2], now)
local tpm = gauge(key, 'M', window(key, tname, trule, TPM, TPM / 60, s[3], now), s[4], now)

for _ = 1, backs do
  local tokens, id, n
  tokens, id, n, at = struct.unpack('<ddd', a, at)
  local g, b = qps, bq
  if tokens == 1 then g, b = tpm, bt end
  shed(g.short, now, b.rate)
  if lives(g.short, id) then
    local _, there, link = slot(g.short, id)
    gtakeback(g, now, b.rate, id, link, min(n, there))
  end
end

-- charge is gcharge, but one slot never spans two of the ten windows, so that what comes back is known to both.
local function charge(g, b, n, last)
  if n <= 0 then return 0 end
  if b.ten > 0 and not g.long then remember(g, now) end
  local l, w = 0, g.short
  shed(w, now, b.rate)
  if g.long then
    l = add(g.long, now, 0, n, last)
    if w.n > 0 and w.link ~= l and w.rule == SLIDING then w.till = now end
  end
  if w.rule == BUCKET and last > now then
    local done = w.since + draintime(w, b.rate, w.used)
    w.since = w.since + max(last - done, 0)
  end
  local id = add(w, now, b.rate, n, last)
  w.link = l
  return id
end
charge(qps, bq, qdebt, now)
charge(tpm, bt, tdebt, now)

local function lend(g, b, need, want)
  local left, n = gleft(g, now, b), max(need, want)
  if need > left then return 0, 0, goverrun(g, now, b, need) end
  if left < huge then n = max(min(n, max(need, floor(left / share))), 0) end
  return n, charge(g, b, n, now + life), 0
end
local q, qslot, qwait = lend(qps, bq, qneed, qwant)
local t, tslot, twait = lend(tpm, bt, tneed, twant)

for _, g in ipairs({qps, tpm}) do
  local w = g.short
  if w.rule == FIXED and w.n > 0 then life = min(life, w.since + w.span - now) end
end

local others = 0
for name, g in pairs(gateways) do
  if g[2] <= now then
    gateways[name] = nil
  elseif name ~= gateway then
    others = others + g[1]
  end
end
local opens = max(wanted, used)
if conc > 0 then opens = max(min(opens, conc - others), used) end

local out = struct.pack('<ddddddddddd', q, t, qslot, tslot, opens, level(qps.short, now, bq.rate), level(tpm.short, now, bt.rate),
  others, qwait, twait, life)
gateways[gateway] = {opens, now + HOLDLIFE, number, out}
redis.call('HSET', key, 'c', cmsgpack.pack(gateways))
local need = max(ttl(qps.short, now, bq.rate), ttl(qps.long, now, 0), ttl(tpm.short, now, bt.rate), ttl(tpm.long, now, 0), HOLDLIFE)
save(qps.short)
save(qps.long)
save(tpm.short)
save(tpm.long)
if tonumber(s[6] or 0) < now + need + 60000000 then
  redis.call('HSET', key, 'x', now + need + 180000000)
  redis.call('PEXPIRE', key, floor(need / 1000) + 180000)
end
return out
