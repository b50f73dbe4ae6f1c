-- KEYS: the hold's record, and q, t, c of each dimension. ARGV: the numbers, packed; the hold's name.
local a, hold, at = ARGV[1], ARGV[2], nil
local now, withdraw, beaten
now, withdraw, beaten, at = struct.unpack('<ddd', a)
now = clock(now)

local v = redis.call('GET', KEYS[1])
if not v then
  -- Its beginning may still be on the way: then it must not begin.
  redis.call('SET', KEYS[1], '', 'PX', HOLDTTL)
  return ''
elseif v == '' then
  return ''
end
local record = cmsgpack.unpack(v)

for i = 1, (#KEYS - 1) / 3 do
  local qrule, trule, target
  qrule, trule, target, at = struct.unpack('<ddd', a, at)
  local r = record[2][KEYS[3 * i]]
  if r then
    local d = dimension(i, qrule, trule, now)
    local trate, tten, total, p, qrate, q = unpack(r)
    if withdraw == 1 then
      for k = 1, #q, 4 do
        local member = hold .. ':' .. q[k]
        if d.qps.short.log then
          for j = 1, q[k + 1] do redis.call('ZREM', d.q, j == 1 and member or member .. ':' .. j) end
        end
        gtakeback(d.qps, now, qrate, q[k + 2], q[k + 3], q[k + 1])
      end
    end
    if target > total then gcharge(d.tpm, now, {ten = tten, rate = trate}, target - total, now) end
    local back = max(total - target, 0)
    for k = #p - 2, 1, -3 do
      local n = min(back, p[k + 2])
      if p[k + 2] > 0 then gtakeback(d.tpm, now, trate, p[k], p[k + 1], n) end
      back = back - n
    end
    redis.call('ZREM', d.c, hold)
    keep(d, now, qrate, trate)
    record[2][d.t] = nil
  end
end

if next(record[2]) then
  redis.call('SET', KEYS[1], cmsgpack.pack(record), 'PX', HOLDTTL)
elseif beaten == 1 then
  redis.call('SET', KEYS[1], '', 'PX', HOLDTTL) -- a sign of life may still be on its way
else
  redis.call('DEL', KEYS[1])
end
return ''
