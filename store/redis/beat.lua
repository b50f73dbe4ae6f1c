-- KEYS: the hold's record, and q, t, c of each dimension. ARGV: the numbers, packed; the hold's name.
local a, hold, at = ARGV[1], ARGV[2], nil
local now
now, at = struct.unpack('<d', a)
now = clock(now)

local v = redis.call('GET', KEYS[1])
if not v or v == '' then return '' end
local record = cmsgpack.unpack(v)

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
