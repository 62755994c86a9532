-- newest: ARGV 2 from where on, 3 how many of each, 4… sorted sets of ids. Of each its ids, the
-- greatest first. One look at all of them: a task that goes from one to another is in one.
-- uses: server

local answers = {}
for i = 4, #ARGV do
  answers[i - 3] = call('ZREVRANGEBYLEX', ARGV[i], ARGV[2], '-', 'LIMIT', 0, ARGV[3])
end
return answers
