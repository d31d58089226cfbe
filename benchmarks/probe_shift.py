import torch, triton, sys
sys.path[:0]=["kernels","."]
from dspark_kernels.block_table_shift import *
dev="cuda"
def bench(f,n=20):
    f(); torch.cuda.synchronize(); g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(n): f()
    return min(triton.testing.do_bench(g.replay,warmup=10,rep=60,return_mode="median") for _ in range(2))*1000/n
for R,W in [(8,1024),(64,4096),(256,8192),(256,32768)]:
    base=torch.randint(1,1<<30,(R,W),dtype=torch.int32,device=dev); dst=torch.empty_like(base)
    sh=torch.full((R,),97,dtype=torch.int32,device=dev); nrem=(W-sh).to(torch.int32)
    c=bench(lambda: dst.copy_(base)); null=torch.zeros(1,device=dev)
    res=[]
    for s in candidate_shift_shapes(W):
        try: t=bench(lambda: shift_block_tables(base,sh,nrem,shape=s)); res.append((round(t/c,3),round(t,2),s.chunk,s.num_warps,s.prefetch))
        except Exception as e: res.append((99,str(e)[:60],s.chunk,s.num_warps,s.prefetch))
    d=res[0]; res.sort()
    print(R,W,"copy",round(c,2),"default",d,"best",res[:5],flush=True)
