-- KEYS: the hold's record, and q, t, c of each dimension. ARGV: the numbers, packed; the hold's name.
local a, hold, at = ARGV[1], ARGV[2], nil
local now
now, at = struct.unpack('<d', a)
now = clock(now)

local v = redis.call('GET', KEYS[1])
if v == '' then return '' end
-- A hold that is not known is open all the same: the server has forgotten it, or never heard of it. Its concurrency is made
-- anew; its tokens and requests are a window's worth that is lost, so nothing of them is ever given back. Its rate is not
-- known either, and 1 drains next to nothing.
local record = v and cmsgpack.unpack(v) or {0, {}}
if not v then
  for i = 1, (#KEYS - 1) / 3 do record[2][KEYS[3 * i]] = {1, 0, LOST, {}, 1, {0, 0, 0, 0}} end
end

for i = 1, (#KEYS - 1) / 3 do
  local qrule, trule, tokens
  qrule, trule, tokens, at = struct.unpack('<ddd', a, at)
  local r = record[2][KEYS[3 * i]]
  if r then
    if tokens > r[3] then
      local d = dimension(i, qrule, trule, now)
      post(d, r, now, tokens - r[3])
      keep(d, now, r[5], r[1])
    end
    -- Whoever is heard of again is open again: the server may have been away for longer than a hold lives.
    if #r[6] > 0 then
      local c = KEYS[3 * i + 1]
      redis.call('ZADD', c, now + HOLDLIFE, hold)
      if redis.call('PTTL', c) < 60000 then redis.call('PEXPIRE', c, 180000) end
    end
  end
end
redis.call('SET', KEYS[1], cmsgpack.pack(record), 'PX', HOLDTTL)
return ''
