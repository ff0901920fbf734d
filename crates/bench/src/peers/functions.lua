#!lua name=bench
redis.register_function{
  function_name = 'noop',
  callback = function() return 1 end,
  flags = {'no-writes'},
}

redis.register_function{
  function_name = 'readOne',
  callback = function(keys) return #redis.call('GET', keys[1]) end,
  flags = {'no-writes'},
}

-- The last level needs the lengths of its lists only.
local function walk(node, depth)
  if depth == 1 then return redis.call('LLEN', 'l:' .. node) end
  local friends = redis.call('LRANGE', 'l:' .. node, 0, -1)
  local sum = #friends
  for i = 1, #friends do sum = sum + walk(friends[i], depth - 1) end
  return sum
end

redis.register_function{
  function_name = 'countFriends',
  callback = function(keys, args) return walk(args[1], tonumber(args[2])) end,
  flags = {'no-writes'},
}
