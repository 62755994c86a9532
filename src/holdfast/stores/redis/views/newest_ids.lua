-- newest_ids: Reads the newest ids of several indexes in one step, so that a task that moves is in
-- one of them.
-- ARGV 2 from where on, 3 how many of each, 4… sorted sets of ids. Answers for each its ids, the
-- greatest first.
-- uses: server

local answers = {}
for i = 4, #ARGV do
  answers[i - 3] = call('ZREVRANGEBYLEX', ARGV[i], ARGV[2], '-', 'LIMIT', 0, ARGV[3])
end
return answers
