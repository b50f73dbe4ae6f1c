-- A dimension that is shared exactly is three keys: q, the log of requests (sliding only), t, a hash with all other windows
-- and x, when the keys expire; and c, the open holds by when they die.

local function dimension(i, qrule, trule, now)
  local q, t, c = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  local qname, tname = 'r' .. qrule, 'm' .. trule
  local s = redis.call('HMGET', t, tname, 'M', 'R', 'x', qname)
  local requests
  if qrule == SLIDING then
    requests = logged(q)
  else
    requests = window(t, qname, qrule, QPS, qrule == BUCKET and QPS or 0, s[5], now)
  end
  return {q = q, t = t, c = c, x = tonumber(s[4] or 0), open = false, qps = gauge(t, 'R', requests, s[3], now),
    tpm = gauge(t, 'M', window(t, tname, trule, TPM, 1000000, s[1], now), s[2], now),
    bq = false, bt = false, requests = 0, tokens = 0, qused = 0, tused = 0, bits = 0, qwait = false, twait = false, charged = false}
end

local function open(d, now)
  d.open = redis.call('ZCOUNT', d.c, now + 1, '+inf')
end

-- keep writes what has changed and sees to it that no key stays for ever: the keys expire together, not before a minute
-- after all of it is empty, and are not told so again with each charge.
local function keep(d, now, qrate, trate)
  local need = max(ttl(d.tpm.short, now, trate), ttl(d.tpm.long, now, 0), ttl(d.qps.long, now, 0), HOLDLIFE)
  if not d.qps.short.log then need = max(need, ttl(d.qps.short, now, qrate)) end
  local renew = d.x < now + need + 60000000
  if renew then
    d.x = now + need + 180000000
    redis.call('HSET', d.t, 'x', d.x)
  end
  save(d.tpm.short)
  save(d.tpm.long)
  save(d.qps.long)
  if not d.qps.short.log then save(d.qps.short) end
  local ms = floor((d.x - now) / 1000)
  if renew then redis.call('PEXPIRE', d.t, ms) end
  if renew or d.qps.short.fresh then redis.call('PEXPIRE', d.q, ms) end
  if renew or d.open == 0 then redis.call('PEXPIRE', d.c, ms) end
end

-- A hold's record: {highest part, {[t] = {trate, tten, total, posts, qrate, requests}}}. Posts are s, l, n in a row, the
-- hold of admission first and then what came after, oldest first; requests are part, n, s, l in a row. An empty record is
-- the mark of an end that came before its beginning.

-- post charges tokens to an open hold, as charge.postLocked does.
local function post(d, r, now, n)
  if n <= 0 then return end
  local p = r[4]
  local s, l = gcharge(d.tpm, now, {ten = r[2], rate = r[1]}, n, now)
  r[3] = r[3] + n
  local k = #p
  if k > 3 and p[k - 2] == s then
    p[k] = p[k] + n
    return
  end
  local kept = {p[1], p[2], p[3]}
  for i = 4, k, 3 do
    if not ggone(d.tpm, p[i], p[i + 1]) then
      kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = p[i], p[i + 1], p[i + 2]
    end
  end
  kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = s, l, n
  r[4] = kept
end
